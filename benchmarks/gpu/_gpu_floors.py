"""Rates of the card that no kernel exceeds: copies, products, launches, reads of a number."""

from __future__ import annotations

import torch
from _gpu_timing import DEVICE, SMALL, alternate, seconds, tell


def main() -> None:
    size, side = (1 << 24, 512) if SMALL else (1 << 30, 8192)
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    a = torch.randn(side, side, device=DEVICE)
    double, half, one = a.double(), a.bfloat16(), torch.zeros(1, device=DEVICE)
    host = torch.empty(size // 4, dtype=torch.uint8, pin_memory=DEVICE == "cuda")
    pageable = torch.empty(size // 4, dtype=torch.uint8)
    torch.backends.cuda.matmul.allow_tf32 = False

    def many() -> None:
        for _ in range(1000):
            one.add_(1)

    spent = alternate({"copy": lambda: target.copy_(source), "bf16": lambda: half @ half}, 10)
    spent |= alternate({"fp32": lambda: a @ a, "fp64": lambda: double @ double}, 3, 1)
    spent |= alternate(
        {
            "pinned": lambda: host.to(DEVICE, non_blocking=True),
            "pageable": lambda: pageable.to(DEVICE),
            "launches": many,
            "reads": lambda: [one.item() for _ in range(1000)],
        },
        5,
    )
    flops = 2e-12 * side**3
    tell(
        copy_tb_s=2e-12 * size / spent["copy"],
        bf16_tflops=flops / spent["bf16"],
        fp32_tflops=flops / spent["fp32"],
        fp64_tflops=flops / spent["fp64"],
        pinned_gb_s=1e-9 * len(host) / spent["pinned"],
        pageable_gb_s=1e-9 * len(host) / spent["pageable"],
        launch_us=1e3 * spent["launches"],
        read_us=1e3 * spent["reads"],
        empty_wait_us=1e6 * seconds(lambda: None),
    )


if __name__ == "__main__":
    main()
