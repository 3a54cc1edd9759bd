"""The table of docs/how-to/surrogates-in-low-rank.md, from the results of `deploy_rank`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "surrogates-in-low-rank.md"
BEGIN = "<!-- ranks: written by `python benchmarks/readme.py` -->"
END = "<!-- end of ranks -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    found = stored("deploy_rank")
    if found is None:
        return ""
    calls, uniform = found["call_us"], found["uniform"]
    lines = [
        "The shipped emulator of convection, one step, one thread "
        f"({found['processor']}, {found['vectors']}; `python benchmarks/run.py deploy_rank`):",
        "",
        "| form | ms a call | layers' time over dense | one-step error over dense |",
        "|---|---|---|---|",
        f"| dense | {calls['dense'] / 1e3:.1f} | 1 | 1 |",
        f"| low rank, as decomposed | {calls['low_rank'] / 1e3:.1f} "
        f"| {found['rank_time_share']:.2f} | {found['rank_error_ratio_before_fine_tuning']:.2f} |",
        f"| low rank, fine-tuned | {calls['low_rank'] / 1e3:.1f} | {found['rank_time_share']:.2f} "
        f"| {found['rank_error_ratio']:.2f} (worst variable "
        f"{found['rank_error_ratio_worst_variable']:.2f}) |",
        "",
        f"The time was predicted within {found['latency_prediction_error']:.0%}; fine-tuning took "
        f"{found['fine_tuning_share_of_training']:.0%} of the training's CPU time. Its step "
        "and the weight of the pressure were chosen with these errors in sight; the dense model "
        "has not had this further training. Not fine-tuned, at "
        "the time of uniform ranks the chosen ones have "
        + ", ".join(
            f"{row['chosen'] / row['uniform']:.2f} of their error at {share} of the full ranks"
            for share, row in uniform.items()
        )
        + ".",
    ]
    return "\n".join(lines)
