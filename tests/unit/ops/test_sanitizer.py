"""The generated C under AddressSanitizer: exact arrays, outputs poisoned with NaN."""

import subprocess

import pytest
import torch
from sanitizers import require_sanitizer

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import find_compiler
from scitoolkit.ops.tensor_product import Edges, TensorProductSpec, channelwise_instructions, cpu

pytest.importorskip("e3nn")
FLAGS = ["-O1", "-g", "-march=native", "-std=gnu11", "-fopenmp", "-w", "-fsanitize=address"]

# Every array has its exact size on the heap, so that one element too far stops the program.
MAIN = """
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
static float *array(i64 n, float value) {{
  float *p = malloc(n * sizeof(float)); for (i64 i = 0; i < n; i++) p[i] = value; return p;
}}
static i64 *numbers(i64 n, const i64 *from) {{
  i64 *p = malloc(n * sizeof(i64)); memcpy(p, from, n * sizeof(i64)); return p;
}}
static int bad(const float *p, i64 n) {{ int b = 0; for (i64 i = 0; i < n; i++) b += !isfinite(p[i]); return b; }}
int main(void) {{
  {graph}
  float *X = array({n}*{d1}, 1), *Y = array({e}*{d2}, 2), *W = array({e}*{w}, 3);
  float *G = array({n}*{d3}, 1), *DX = array({n}*{d1}, 1), *DY = array({e}*{d2}, 1), *DW = array({e}*{w}, 1);
  float *Z = array({n}*{d3}, NAN), *GX = array({n}*{d1}, 0), *OWN = array(2*{own}, NAN);
  float *GY = array({e}*{d2}, NAN), *GW = array({e}*{w}, NAN);
  {call};
  const int wrong = {checks};
  if (wrong) printf("%d elements are not written\\n", wrong);
  return wrong != 0;
}}
"""  # noqa: E501
INPUTS = "X, Y, W"
CALLS = {
    "forward": (f"{INPUTS}, Z", "Z"),
    "backward": (f"{INPUTS}, G, GX, GY, GW, OWN, {{own}}", "GX GY GW"),
    "double_backward": (
        f"{INPUTS}, G, DX, {{d1}}, DY, {{d2}}, DW, {{w}}, Z, GX, GY, GW, OWN, {{own}}",
        "Z GX GY GW",
    ),
}


NODES, EDGES = 6, 1500  # of two chunks, so that one hands over to the other


def _program(spec, kernel):
    index = torch.randint(0, NODES - 1, (2, EDGES), generator=torch.Generator().manual_seed(0))
    edges = Edges.build(*index, NODES)
    assert edges.graph.num_chunks == 2
    sender, ptr, order, chunk_ptr, slot, slot_ptr, slot_node = edges.tensors()
    sizes = {"n": NODES, "e": EDGES, "d1": spec.dim_in1, "d2": spec.dim_in2, "d3": spec.dim_out}
    sizes |= {"w": spec.weight_numel, "own": cpu.private_size(spec, edges.graph.most_slots)}
    lists = {"chunk_ptr": chunk_ptr, "ptr": ptr, "order": order, "sender": sender}
    lists |= {"slot": slot, "slot_ptr": slot_ptr, "slot_node": slot_node}
    graph = "\n".join(
        f"const i64 {name}_[] = {{{','.join(map(str, values.tolist()))}}}; "
        f"i64 *{name} = numbers({values.numel()}, {name}_);"
        for name, values in lists.items()
    )
    arguments, outputs = CALLS[kernel]
    counts = {"Z": "{n}*{d3}", "GX": "{n}*{d1}", "GY": "{e}*{d2}", "GW": "{e}*{w}"}
    checks = " + ".join(f"bad({name}, {counts[name]})" for name in outputs.split()).format(**sizes)
    call = f"{kernel}({NODES}, {EDGES}, 2, {', '.join(lists)}, {arguments}, 2)"
    main = MAIN.format(graph=graph, call=call.format(**sizes), checks=checks, **sizes)
    return cpu.generate(spec, kernel, "float") + main


@pytest.mark.parametrize("num_bytes", [16, 32])
@pytest.mark.parametrize("kernel", list(cpu.KERNELS))
def test_no_read_or_write_outside_and_every_output_is_written(kernel, num_bytes, tmp_path):
    try:
        compiler = find_compiler()
    except BackendError:
        pytest.skip("no C compiler")
    require_sanitizer(compiler, "address")
    in1, in2 = "19x0e+11x1o+16x0e", "0e+2x1o"
    irreps, instructions = channelwise_instructions(in1, in2, "0e+1o+1e")
    instructions.append((1, 1, len(irreps), "uvw", True))
    instructions.append((2, 0, len(irreps), "uvw", True))  # rows of weights eight at a time
    spec = TensorProductSpec.build(in1, in2, irreps + type(irreps)("9x0e"), instructions)
    source, program = tmp_path / "kernel.c", tmp_path / "kernel"
    source.write_text(_program(spec, kernel))
    command = [compiler, *FLAGS, f"-DBYTES={num_bytes}", str(source), "-o", str(program), "-lm"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not built.returncode, built.stderr
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [str(program)], capture_output=True, text=True, env=environment, check=False
    )
    assert not done.returncode, done.stdout + done.stderr[:2000]
