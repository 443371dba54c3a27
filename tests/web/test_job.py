"""One job: its story, its output, and what can be done to it."""

from __future__ import annotations

from pathlib import Path

from harness import ROOT, Daemon, eventually
from web.conftest import Visit, printing, training

EVIL = "<img src=x onerror=window.hacked=1>"


def test_the_story_of_a_job(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy, "/jobs/1")
    runs = page.get_by_role("region", name="Runs")
    runs.get_by_text("resizing", exact=False).first.wait_for()
    assert runs.get_by_role("row").count() >= 3
    page.get_by_test_id("speed").get_by_text("Speed-up").wait_for()
    page.get_by_test_id("speed").locator(".u-legend").get_by_text("at most").wait_for()
    page.get_by_test_id("metrics").locator("canvas").wait_for()
    page.get_by_role("heading", name="Why").wait_for()
    page.get_by_test_id("log").get_by_text("loss").first.wait_for()
    page.get_by_text("Specification").click()
    page.get_by_text('"uses_library": true').wait_for()


def test_a_waiting_job_says_why_and_what_would_help(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy, "/jobs/8")
    page.get_by_text("needs 8 GPUs", exact=False).first.wait_for()
    page.get_by_text("queued for", exact=False).first.wait_for()


def test_actions_on_a_job(fresh: Daemon, visit: Visit) -> None:
    (job,) = fresh.submit(**training("acts", 500, 1, 2, 1.0))
    page = visit.log_in(fresh, f"/jobs/{job}")
    actions = page.get_by_role("toolbar", name="Actions")
    actions.get_by_role("button", name="Pause").click()
    actions.get_by_role("button", name="Resume").wait_for()
    page.locator("h1 + .state.paused").wait_for(timeout=20_000)
    actions.get_by_role("button", name="Resume").click()
    actions.get_by_role("button", name="Pause").wait_for()
    actions.get_by_label("Priority").select_option("urgent")
    eventually(lambda: fresh.get(f"/v1/jobs/{job}")["priority"] == 20, 10)
    actions.get_by_role("button", name="Cancel").click()
    page.locator("h1 + .state.cancelled").wait_for(timeout=20_000)
    actions.get_by_role("button", name="Submit again").click()
    page.wait_for_url(f"**/jobs/{job + 1}")
    page.get_by_role("toolbar", name="Actions").get_by_role("button", name="Cancel").click()
    page.locator("h1 + .state.cancelled").wait_for(timeout=20_000)
    page.get_by_role("button", name="Remove").click()
    page.wait_for_url("**/jobs")
    eventually(lambda: fresh.request("GET", f"/v1/jobs/{job + 1}")[0] == 404, 10)


def test_an_ended_job_is_put_back_into_the_queue(fresh: Daemon, visit: Visit) -> None:
    (job,) = fresh.submit(**printing("print('again')", name="twice"))
    page = visit.log_in(fresh, f"/jobs/{job}")
    page.locator("h1 + .state.completed").wait_for(timeout=20_000)
    page.get_by_role("toolbar", name="Actions").get_by_role("button", name="Requeue").click()
    page.get_by_text(f"job {job} is back in the queue").wait_for()
    eventually(lambda: fresh.get(f"/v1/jobs/{job}")["attempts"] == 2, 20, what="it runs a second time")


def test_files_are_listed_with_sizes_and_downloaded(fresh: Daemon, visit: Visit) -> None:
    script = "import pathlib; pathlib.Path('out').mkdir(); pathlib.Path('out/best model.pt').write_bytes(b'w' * 3000)"
    (job,) = fresh.submit(**printing(script, name="writes"))
    eventually(lambda: fresh.get(f"/v1/jobs/{job}")["state"] == "completed", 20)
    page = visit.log_in(fresh, f"/jobs/{job}")
    files = page.get_by_test_id("files")
    files.get_by_text("Files and outputs").click()
    row = files.get_by_role("row").filter(has_text="out/best model.pt")
    row.get_by_text("2.9 KiB").wait_for()
    with page.expect_download() as started:
        row.get_by_role("button", name="Download").click()
    assert started.value.suggested_filename == "best model.pt"
    assert Path(started.value.path()).read_bytes() == b"w" * 3000
    files.get_by_label("Search the files").fill("*.csv")
    files.get_by_text("No file matches.").wait_for()


def test_clone_and_edit_fills_the_job_file(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy, "/jobs/1")
    page.get_by_role("button", name="Clone and edit").click()
    page.wait_for_url("**/submit")
    assert page.get_by_label("Name").input_value() == "resnet50"
    assert page.get_by_label("GPUs, at most").input_value() == "8"
    page.get_by_test_id("verdict").filter(has_text="resnet50").wait_for()


def test_a_clone_has_all_that_the_job_file_said(fresh: Daemon, visit: Visit) -> None:
    said = {"steps": 600_000, "batch_size": 480, "time_limit": 7200, "env": {"KEY": "hunter2"}, "secrets": ["KEY"]}
    (job,) = fresh.submit(**printing("print('done')", name="llm", **said))
    page = visit.log_in(fresh, f"/jobs/{job}")
    page.locator("h1 + .state.completed").wait_for(timeout=20_000)
    visit.expected.append("422")
    page.get_by_role("button", name="Submit again").click()
    page.get_by_text("KEY has no value").wait_for()
    page.get_by_role("button", name="Clone and edit").click()
    page.wait_for_url("**/submit")
    text = page.get_by_test_id("editor").locator(".cm-content")
    for line in ("steps: 600000", "batch_size: 480", "time_limit: 7200", "set them in env: KEY"):
        text.get_by_text(line).wait_for()
    assert "hunter2" not in page.content()


def test_progress_of_a_training_by_steps_is_in_steps(fresh: Daemon, visit: Visit) -> None:
    script = "for n in range(1, 4): print(f'step {n}000/6000 loss {1 / n}')\nimport time; time.sleep(60)"
    (job,) = fresh.submit(**printing(script, name="llm", steps=6000))
    page = visit.log_in(fresh, f"/jobs/{job}")
    page.get_by_title("3,000 of 6,000 steps").wait_for(timeout=20_000)
    page.get_by_test_id("metrics").locator(".u-legend").get_by_text("step").wait_for()


def test_output_is_text_whatever_it_says(fresh: Daemon, visit: Visit) -> None:
    script = f"print('\\033[31mred\\033[0m {EVIL}'); print('x' * 20); print('needle')"
    (job,) = fresh.submit(**printing(script, name="evil"))
    page = visit.log_in(fresh, f"/jobs/{job}")
    log = page.get_by_test_id("log")
    log.get_by_text("needle").wait_for()
    log.get_by_text(EVIL).wait_for()
    assert log.locator("img").count() == 0
    assert page.evaluate("() => window.hacked") is None
    colour = log.locator(".ansi", has_text="red").first.evaluate("one => getComputedStyle(one).color")
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    assert red > 1.5 * max(green, blue)
    page.get_by_label("Search the output").fill("needle")
    page.get_by_text("1 line matches in what is loaded").wait_for()
    assert log.locator(".line").count() == 1


def test_the_end_of_a_long_log_comes_first_and_the_rest_on_request(fresh: Daemon, visit: Visit) -> None:
    (job,) = fresh.submit(**printing("for n in range(60_000): print('line', n, 'of many')", name="long"))
    eventually(lambda: fresh.get(f"/v1/jobs/{job}")["state"] == "completed", 30)
    page = visit.log_in(fresh, f"/jobs/{job}")
    log = page.get_by_test_id("log")
    log.get_by_text("line 59999 of many").wait_for()
    assert log.locator(".line").count() < 200
    lines = int(log.locator("> div").evaluate("one => one.offsetHeight")) // 19
    assert 5_000 < lines < 30_000, "about the last 256 KiB"
    page.get_by_role("button", name="Earlier").click()
    eventually(lambda: int(log.locator("> div").evaluate("one => one.offsetHeight")) // 19 > 1.5 * lines, 10)
    log.evaluate("one => { one.scrollTop = 0 }")
    eventually(lambda: "59999" not in log.inner_text(), 5)


def test_what_is_not_loaded_is_searched_too(fresh: Daemon, visit: Visit) -> None:
    script = "for n in range(60_000): print('needle' if n == 7 else 'line', n, 'of many')"
    (job,) = fresh.submit(**printing(script, name="long"))
    eventually(lambda: fresh.get(f"/v1/jobs/{job}")["state"] == "completed", 30)
    page = visit.log_in(fresh, f"/jobs/{job}")
    log = page.get_by_test_id("log")
    log.get_by_text("line 59999 of many").wait_for()
    page.get_by_label("Search the output").fill("needle")
    page.get_by_text("0 lines match in what is loaded").wait_for()
    page.get_by_role("button", name="Search earlier output").click()
    log.get_by_text("needle 7 of many").wait_for()
    page.get_by_text("1 line matches in all of the output").wait_for()


def test_output_of_earlier_attempts_can_be_read(fresh: Daemon, visit: Visit) -> None:
    script = "import os, time; print('attempt', os.environ['SWELL_RUN'], 'speaks'); time.sleep(0.2)"
    (job,) = fresh.submit(**printing(script, name="again"))
    eventually(lambda: fresh.get(f"/v1/jobs/{job}")["state"] == "completed", 30)
    fresh.post(f"/v1/jobs/{job}/requeue")
    eventually(lambda: fresh.get(f"/v1/jobs/{job}")["attempts"] == 2, 30)
    eventually(lambda: fresh.get(f"/v1/jobs/{job}")["state"] == "completed", 30)
    page = visit.log_in(fresh, f"/jobs/{job}")
    log = page.get_by_test_id("log")
    log.get_by_text(f"attempt {job}.2 speaks").wait_for()
    page.get_by_role("button", name="Earlier").click()
    log.get_by_text(f"attempt {job}.1 speaks").wait_for()
    page.get_by_role("button", name="Earlier").click()
    page.get_by_text("this is the beginning").wait_for()


def test_output_reads_as_a_terminal_would_show_it(fresh: Daemon, visit: Visit) -> None:
    script = (
        "import sys, time\n"
        "for n in range(101): sys.stdout.write(f'\\r{n}%|bar'); sys.stdout.flush(); time.sleep(0.005)\n"
        "print('\\n\\033]8;;http://x\\007link\\033]8;;\\007 \\033[2Kcleared \\033[34mdark blue\\033[0m')"
    )
    (job,) = fresh.submit(**printing(script, name="bar"))
    page = visit.log_in(fresh, f"/jobs/{job}")
    log = page.get_by_test_id("log")
    log.get_by_text("link cleared").wait_for()
    assert log.locator(".line").all_inner_texts() == ["100%|bar", "link cleared dark blue"]
    colour = log.locator(".ansi", has_text="dark blue").evaluate("one => getComputedStyle(one).color")
    assert sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) > 300, colour


def test_metrics_of_other_sizes_are_switched_on(fresh: Daemon, visit: Visit) -> None:
    script = (
        "import swell\n"
        "with swell.training(epochs=3) as run:\n"
        "    for n in run.epochs():\n"
        "        run.log(loss=1 / (n + 1), val_loss=2 / (n + 1), a=1, b=1, c=1, rate=12000 + n)\n"
    )
    env = {"PYTHONPATH": str(ROOT / "src")}
    (job,) = fresh.submit(**printing(script, name="logs", epochs=3, uses_library=True, env=env))
    page = visit.log_in(fresh, f"/jobs/{job}")
    metrics = page.get_by_test_id("metrics")
    metrics.get_by_label("val_loss").wait_for()
    assert metrics.get_by_label("loss", exact=True).is_checked()
    assert not metrics.get_by_label("rate").is_checked(), "of another size"
    metrics.get_by_label("rate").check()
    metrics.locator(".u-legend").get_by_text("rate").wait_for()


def test_ranks_are_told_apart(fresh: Daemon, visit: Visit) -> None:
    script = "import os, time; print('I am rank', os.environ['RANK']); time.sleep(60)"
    job = printing(script, name="ranks", gpus=2, launcher="per-gpu")
    (number,) = fresh.submit(**job)
    page = visit.log_in(fresh, f"/jobs/{number}")
    log = page.get_by_test_id("log")
    log.get_by_text("I am rank 1").wait_for()
    log.get_by_text("I am rank 0").wait_for()
    page.get_by_label("Rank", exact=True).select_option("1")
    eventually(lambda: "rank 0" not in log.inner_text() and "rank 1" in log.inner_text(), 10)


def test_a_log_is_followed_across_a_restart_of_the_daemon(fresh: Daemon, visit: Visit, tmp_path: Path) -> None:
    visit.expected += [
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY_RESPONSE",
        "ERR_NETWORK",
    ]
    gate = tmp_path / "gate"
    script = (
        "import time, pathlib\n"
        "print('before the restart')\n"
        f"while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.05)\n"
        "print('after the restart')\n"
    )
    (job,) = fresh.submit(**printing(script, name="lasting"))
    page = visit.log_in(fresh, f"/jobs/{job}")
    log = page.get_by_test_id("log")
    log.get_by_text("before the restart").wait_for()
    fresh.stop()
    page.get_by_test_id("stale").wait_for(timeout=20_000)
    assert "old" in page.get_by_test_id("stale").inner_text()
    fresh.start()
    page.get_by_test_id("status").filter(has_text="live").wait_for(timeout=20_000)
    eventually(lambda: page.get_by_test_id("stale").count() == 0, 10)
    gate.touch()
    log.get_by_text("after the restart").wait_for(timeout=20_000)
    assert log.get_by_text("before the restart").count() == 1, "nothing twice"
    page.locator("h1 + .state.completed").wait_for(timeout=20_000)
