/** A YAML editor with errors at their lines. It lives in a shadow root: there its styles are sheets, which the content
 * security policy allows, and not elements, which it does not. */
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, setDiagnostics } from "@codemirror/lint";
import { Annotation, EditorState } from "@codemirror/state";
import { EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import type { Problem } from "./api";

const fromOutside = Annotation.define<boolean>();

const style = HighlightStyle.define([
  {
    tag: [tags.propertyName, tags.definition(tags.propertyName)],
    color: "var(--accent-text)",
    fontWeight: "600",
  },
  { tag: [tags.string, tags.content], color: "var(--text)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--good)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
]);

const look = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--panel)", height: "100%", fontSize: "14px" },
  ".cm-content": { fontFamily: "ui-monospace, Menlo, Consolas, monospace", caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--lane)", color: "var(--faint)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  "&.cm-focused": { outline: "2px solid var(--accent)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--select) !important",
  },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)" },
});

/** Text typed over a selection: left to the browser, it would keep the look in a style attribute, which the content
 * security policy forbids. */
function replaceSelected(event: InputEvent, view: EditorView): boolean {
  if (event.inputType !== "insertText" || !event.data || view.composing || view.state.selection.main.empty)
    return false;
  event.preventDefault();
  view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  return true;
}

export interface Editor {
  set(text: string): void;
  show(problems: Problem[]): void;
  destroy(): void;
}

export function makeEditor(host: HTMLElement, text: string, changed: (text: string) => void): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const box = document.createElement("div");
  box.style.height = "100%";
  root.replaceChildren(box);
  const view = new EditorView({
    root,
    parent: box,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        history(),
        lintGutter(),
        highlightActiveLine(),
        yaml(),
        syntaxHighlighting(style),
        look,
        keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
        EditorView.contentAttributes.of({
          "aria-label": "Job file (YAML). Escape, then Tab leaves the editor.",
        }),
        EditorView.domEventHandlers({ beforeinput: replaceSelected }),
        EditorView.updateListener.of((update) => {
          const outside = update.transactions.some((one) => one.annotation(fromOutside));
          if (update.docChanged && !outside) changed(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    set(next) {
      if (next === view.state.doc.toString()) return;
      const changes = { from: 0, to: view.state.doc.length, insert: next };
      view.dispatch({ changes, annotations: fromOutside.of(true) });
    },
    show(problems) {
      const found = problems.map((problem) => {
        const line = view.state.doc.line(Math.min(Math.max(1, problem.line ?? 1), view.state.doc.lines));
        const message = `${problem.path ? `${problem.path}: ` : ""}${problem.what}${problem.fix ? ` (${problem.fix})` : ""}`;
        return { from: line.from, to: line.to, severity: "error" as const, message };
      });
      view.dispatch(setDiagnostics(view.state, found));
    },
    destroy: () => view.destroy(),
  };
}
