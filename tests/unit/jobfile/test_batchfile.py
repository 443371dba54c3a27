"""A batch file: what each line becomes, how it is named, and what is said of a line that is wrong."""

from typing import Any

import pytest

from swell.jobfile.bash_line import comment_at
from swell.jobfile.batchfile import (
    LONGEST,
    BatchLine,
    Requirements,
    _read_line,
    job_document,
    read_batch,
    stem,
)
from swell.jobfile.expand import Given, expand
from swell.jobfile.problems import JobFileError

GIVEN = Given(now_s=0.0, user="ann", resolve=lambda name: ())


def commands(text: str) -> list[str]:
    return [line.command for line in read_batch(text, "b.sh")]


def names(text: str) -> list[str]:
    return [line.name for line in read_batch(text, "b.sh")]


def test_one_job_per_line_and_none_for_blank_lines_and_comments() -> None:
    text = "#!/bin/bash\necho one\n\n   # a comment\necho two && echo three\r\n\t\n"
    assert [(line.number, line.command) for line in read_batch(text, "b.sh")] == [
        (2, "echo one"),
        (5, "echo two && echo three"),
    ]


@pytest.mark.parametrize(
    ("line", "comment"),
    [
        ("echo a # b", "# b"),
        ("echo '#a' \"# b\"", ""),
        ("echo a#b", ""),
        ("echo \\# a", ""),
        ("echo \\' # b", "# b"),
        ("# all", "# all"),
        ("echo ${#name} $#", ""),
        ("true;# b", "# b"),
        ("(true)# b", "# b"),
        ("echo a\\ #b", ""),
        ("echo $(true)#b", ""),
        ('echo "$(echo "a # b")" # c', "# c"),
        ("echo `echo 'a # b'` # c", "# c"),
        ("echo $'it\\'s # a' # c", "# c"),
        ("echo ${x:- # y} ${x/ # /-} # c", "# c"),
        ('echo "${x:-it\'s # a}" # c', "# c"),
        ('echo "it\'s (" # c', "# c"),
        ("case x in x) true;; esac # c", "# c"),
        ("echo 'a\\' # c", "# c"),
        ("echo $(echo \"it's\") 'x' # c", "# c"),
        ("echo `echo \"it's\"` 'x' # c", "# c"),
    ],
)
def test_a_comment_begins_where_bash_sees_it_begin(line: str, comment: str) -> None:
    assert line[comment_at(line) :] == comment


def test_bash_reads_the_whole_line_and_the_name_is_of_its_command() -> None:
    (line,) = read_batch("\ufeffecho a\\  # why\r\n", "b.sh")
    assert (line.command, line.text) == ("echo a\\", "echo a\\  # why")
    assert line.name == names("echo a\\  # other")[0]
    command = job_document(line, Requirements())["command"]
    assert command[-1] == line.text


def test_options_of_a_line_are_in_its_comment() -> None:
    (line,) = read_batch("python train.py --lr '#1' #swell gpus=2 memory=8GiB time_limit=1h priority=high", "b.sh")
    assert line.command == "python train.py --lr '#1'"
    assert line.options == {"gpus": 2, "memory": 8192, "time_limit": 3600.0, "priority": "high"}


def test_an_inserted_line_renames_no_other() -> None:
    before = names("echo a\necho b\necho a\n")
    after = names("echo new\necho a\n# note\necho b #swell gpus=2\necho a\n")
    assert after[1:] == before
    assert len(set(before)) == 3
    assert before[2] == f"{before[0]}-2"


@pytest.mark.parametrize(
    ("file", "first"),
    [("example/batch.sh", "example_batch.sh"), ("./b c.sh", "b_c.sh"), ("../x.sh", "x.sh"), ("-", "batch")],
)
def test_the_file_is_the_first_part_of_the_names(file: str, first: str) -> None:
    assert stem(file) == first


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a #swell gpus", "b.sh:2: 'gpus' is no option (write #swell gpus=2 memory=8GiB)"),
        ("a #swell gpu=2", "b.sh:2: there is no option 'gpu' of a line"),
        ("a #swell gpus=two", "b.sh:2: gpus: 'two' is not a whole number (write a number such as 2)"),
        ("a #swell memory=lots", "b.sh:2: memory: 'lots' is not a size"),
        ("a #swell utilisation=2", "b.sh:2: utilisation: '2' is not a part of a GPU"),
        ("a #swell share=maybe", "b.sh:2: share: 'maybe' is neither yes nor no"),
        ("#swell gpus=2", "b.sh:2: #swell stands alone (write it behind the command"),
        ("python train.py \\", "b.sh:2: the command ends with a backslash"),
        ("a\0b", "b.sh:2: there is a NUL byte"),
    ],
)
def test_a_wrong_line_is_named_with_its_fix(line: str, said: str) -> None:
    with pytest.raises(JobFileError) as caught:
        read_batch(f"echo fine\n{line}\n", "b.sh")
    assert str(caught.value).startswith(said)


def test_all_wrong_lines_are_named_at_once() -> None:
    with pytest.raises(JobFileError) as caught:
        read_batch("a #swell x=1\nb\nc #swell y=1\n", "b.sh")
    assert [problem.path for problem in caught.value.problems] == ["b.sh:1", "b.sh:3"]


def test_a_file_without_a_command_is_refused() -> None:
    with pytest.raises(JobFileError, match="no command in it"):
        read_batch("# nothing\n", "b.sh")


def spec(needs: Requirements, **options: Any) -> Any:
    line = BatchLine(number=1, name="b.sh.1", command="true", options=options)
    (found,) = expand(job_document(line, needs), GIVEN)
    return found


def test_by_default_a_job_has_one_gpu_to_itself() -> None:
    found = spec(Requirements())
    assert (found.gpus.min, found.gpus.max, found.gpus.share, found.cpus, found.memory_mib) == (1, 1, False, 1, 0)


def test_each_requirement_becomes_a_field_of_the_job() -> None:
    assert spec(Requirements(gpus=0)).cpu_only
    assert spec(Requirements(cpus=8)).cpus == 8
    assert spec(Requirements(memory_mib=10000)).memory_mib == 10000
    assert spec(Requirements(gpu_memory_mib=3000)).gpus.memory_mib == 3000
    assert spec(Requirements(share=True, utilisation=0.5)).gpus.share
    assert spec(Requirements(share=True, utilisation=0.5)).gpus.utilisation_milli == 500
    assert spec(Requirements(labels={"room": "b"})).node_labels == {"room": "b"}


def test_a_line_says_otherwise() -> None:
    needs = Requirements(gpus=1, memory_mib=100, share=True, utilisation=0.5)
    assert spec(needs, gpus=2).gpus.max == 2
    assert not spec(needs, gpus=2).gpus.share
    assert not spec(needs, share=False).gpus.share
    assert spec(needs, memory=8192, cpus=4, retries=2, time_limit=60.0).memory_mib == 8192
    assert spec(needs, gpus=0).cpu_only
    with pytest.raises(JobFileError, match="a job that shares a GPU has one, not 2"):
        spec(needs, gpus=2, share=True)


def test_a_line_may_be_as_long_as_an_argument_and_no_longer() -> None:
    """In bytes: a character may be several."""
    for line in ("x" * LONGEST, "\u00fc" * (LONGEST // 2)):
        assert _read_line(line) is not None
        with pytest.raises(ValueError, match="longer than the 128 KiB"):
            _read_line(line + "x")
