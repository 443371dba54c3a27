"""HiGHS, for the policies that are a linear or an integer program. Imported when such a policy is made, not before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from swell.core.errors import SwellError
from swell.policy._envelope import Floats

_LARGE = 2_000
"""Variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Maximise gain · x subject to rows · x ≤ limits, 0 ≤ x ≤ upper. `rows` are (variables, coefficients)."""

    gain: Floats
    upper: Floats
    rows: Sequence[tuple[Sequence[int], Sequence[float]]]
    limits: Sequence[float]
    whole: bool  # x are whole numbers
    start: Floats | None = None  # a feasible answer to begin with


def highs(policy: str) -> ModuleType:
    """The solver's module. Raises `SwellError` that says how to get it."""
    try:
        import highspy
    except ImportError as error:
        raise SwellError(
            f"policy {policy} needs the solver HiGHS, which is not installed: pip install 'swell[solvers]'"
        ) from error
    module: ModuleType = highspy
    return module


def solve(module: ModuleType, program: Program, time_limit_s: float) -> Floats | None:
    """The best x found in the time there is; None if none was. One thread and a fixed seed: the same every time."""
    solver = module.Highs()
    settings = {"output_flag": False, "threads": 1, "random_seed": 0, "time_limit": time_limit_s, "mip_rel_gap": 1e-4}
    for name, value in (settings | _method(program)).items():
        solver.setOptionValue(name, value)
    solver.passModel(_model(module, program))
    if program.start is not None:
        solution = module.HighsSolution()
        solution.col_value = program.start.tolist()
        solver.setSolution(solution)
    solver.run()
    found = np.array(solver.getSolution().col_value)
    feasible = solver.getInfo().primal_solution_status == 2
    return found if feasible and len(found) == len(program.gain) else None


def _method(program: Program) -> dict[str, str]:
    """How to solve it. Rows with thousands of variables are what presolve and the simplex method are slow at: ten
    thousand jobs took them 5 to 12 s, an interior point 0.2 s."""
    return {} if program.whole or len(program.gain) <= _LARGE else {"presolve": "off", "solver": "ipm"}


def _model(module: ModuleType, program: Program) -> Any:
    count = len(program.gain)
    lp = module.HighsLp()
    lp.num_col_, lp.num_row_ = count, len(program.rows)
    lp.sense_ = module.ObjSense.kMaximize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.gain, np.zeros(count), program.upper
    lp.row_lower_ = np.full(len(program.rows), -module.kHighsInf)
    lp.row_upper_ = np.array(program.limits, dtype=np.float64)
    lengths = [len(variables) for variables, _ in program.rows]
    lp.a_matrix_.format_ = module.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lp.a_matrix_.index_ = np.concatenate([np.asarray(v, dtype=np.int32) for v, _ in program.rows])
    lp.a_matrix_.value_ = np.concatenate([np.asarray(c, dtype=np.float64) for _, c in program.rows])
    if program.whole:
        lp.integrality_ = [module.HighsVarType.kInteger] * count
    return lp
