"""Where training and evaluation get their samples from: a file of them, or records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.console import progress, say
from passwright.training.samples import WorkloadSamples


def samples_at(
    records: Path | None,
    file: Path | None,
    *,
    device: str | None,
    jobs: int,
    only: Callable[[str], bool] | None = None,
) -> list[WorkloadSamples]:
    """Of one kind of device: the one named, or the one that most workloads were measured on. Where nothing
    is kept in a file, no other families are built than those that `only` holds of.

    Read from `file` if there is one; else built of the records at `records` (the committed ones if None),
    and written there. Raises WorkloadError if there are none, or the file is another's.
    """
    from passwright.training import sample_file

    if file is not None and file.exists():
        try:
            found = sample_file.load(file)
        except sample_file.SampleFileError as error:
            raise WorkloadError(str(error)) from error
    else:
        found = _built(records, jobs, device, None if file is not None else only)
        if file is not None:
            sample_file.save(found, file)
            say(f"written: {file}, samples of {len(found)} workloads")
    return of_device(found, device)


def of_device(samples: Sequence[WorkloadSamples], device: str | None) -> list[WorkloadSamples]:
    """Those of one device. Raises WorkloadError if it has none."""
    counts = Counter(one.device for one in samples)
    if not counts:
        raise WorkloadError("there are no samples: none of the workloads could be built")
    wanted = device or counts.most_common(1)[0][0]
    if wanted not in counts:
        known = ", ".join(sorted(counts))
        raise WorkloadError(f"nothing was measured on {wanted!r}; there are {known}")
    return [one for one in samples if one.device == wanted]


def _built(
    records: Path | None, jobs: int, device: str | None, only: Callable[[str], bool] | None
) -> list[WorkloadSamples]:
    from passwright.training.data_stats import records_at
    from passwright.training.labels import by_graph
    from passwright.training.noise import with_floors
    from passwright.training.sample_build import build_samples

    found = with_floors(records_at(records))
    if only is not None:
        found = [one for one in found if only(one.family) and device in (None, one.device)]
    with progress(len(by_graph(found))) as reporter:
        built = build_samples(found, jobs=jobs, done=reporter.finished)
    if built.missing:
        say(f"left out, for they are others or cannot be had here: {len(built.missing)} workloads")
    return list(built.samples)
