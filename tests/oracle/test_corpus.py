"""ASTRA-sim's figures: equal under ``compat``, equal by default wherever no correction applies."""

import time
from pathlib import Path

import pytest
from oracle_cases import Case, cases, difference

from chakra.errors import EXIT_BAD_INPUT, EXIT_STALL, ChakraError, UsageError

BACKENDS = ("unaware", "aware")
#: seconds in which an ill-formed case must have its answer
LIMIT_S = 5.0  # of CPU, so that other work of the machine does not count
#: ill-formed cases whose right answer differs from the repaired ASTRA-sim by a documented correction
CORRECTED = {"C1", "C2", "C3", "C5", "C6", "C12"}


@pytest.fixture(scope="module")
def corpus(shared: Path) -> Path:
    folder = shared / "oracle" / "corpus"
    if not folder.is_dir():
        pytest.skip("no oracle corpus in ../shared")
    return folder


def sound_cases(corpus: Path, backend: str) -> list[Case]:
    """Cases of a back end whose figures are right; skips if that back end does not run."""
    found = [case for case in cases(corpus) if case.sound and case.backend == backend]
    assert found
    try:
        found[0].run("astra-sim")
    except UsageError as error:
        if backend == "unaware":
            raise
        pytest.skip(f"backend {backend}: {error}")
    return found


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_compat_gives_the_figures_of_astra_sim(
    corpus: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    found = sound_cases(corpus, backend)
    for case in found:
        text = difference(case, case.run("astra-sim"))
        if text:
            wrong.append(f"{case.name}: {text}")
    with capsys.disabled():
        print(f"\noracle corpus, {backend}: {len(found) - len(wrong)} of {len(found)} equal", flush=True)
    assert not wrong, "\n".join(wrong)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_right_answer_is_astra_sims_where_no_correction_applies(
    corpus: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    corrected = 0
    found = sound_cases(corpus, backend)
    for case in found:
        result = case.run(None)
        applied = set(result.corrections)
        if applied - {"C9"}:
            corrected += 1
            continue
        text = difference(case, result, exposed="C9" not in applied)
        if text:
            wrong.append(f"{case.name}: {text}")
    with capsys.disabled():
        print(
            f"\noracle corpus, {backend}, default mode: {len(found) - corrected} cases without a correction"
        )
    assert corrected < len(found) / 2
    assert not wrong, "\n".join(wrong)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_ill_formed_cases_get_an_answer_or_a_clear_error(corpus: Path, backend: str) -> None:
    wrong = []
    found = [case for case in cases(corpus) if case.family == "j" and case.backend == backend]
    assert found
    for case in found:
        start = time.process_time()
        text = judged(case)
        seconds = time.process_time() - start
        if not text and seconds > LIMIT_S:
            text = f"{seconds:.1f} s"
        if text:
            wrong.append(f"{case.name} ({case.about.get('suggest')}): {text}")
    assert not wrong, "\n".join(wrong)


def judged(case: Case) -> str:
    """What is wrong with our treatment of an ill-formed case, in default mode; empty if nothing is."""
    suggest = case.about["suggest"]
    try:
        result = case.run(None)
    except ChakraError as error:
        if suggest == "answer":
            return f"an error, but there is an answer: {error}"
        if "\n" in str(error) or len(str(error)) < 20:
            return f"not one clear line: {error}"
        if error.exit_code not in (EXIT_BAD_INPUT, EXIT_STALL):
            return f"exit code {error.exit_code}"
        return ""
    if suggest == "error":
        return "no error"
    if (result.finish_ns < 0).any() or result.partial:
        return "not all NPUs finish"
    expected = case.expected.get("patched_finish")
    if expected and result.finish_ns.tolist() != expected and not set(result.corrections) & CORRECTED:
        return f"finish {result.finish_ns[:4].tolist()}, expected {expected[:4]}"
    return ""
