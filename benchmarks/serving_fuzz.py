"""Requests made from the service's own description, right and wrong ones: none may end with a status of 500 or more.

    python benchmarks/serving_fuzz.py [--cases 5000] [--seed 0]

Serves small models of each kind, and asks each operation with what schemathesis makes of its description: half of the
cases fit it, half do not. 503 and 429 count as failures too: one client alone cannot overload the service. Prints the
statuses, and the first request that failed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.serve.running import Service
from tests.small_models import calibrated_model, dense_model, sparse_model


def fuzz(service: Service, num_cases: int, number: int) -> Counter[int]:
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{service.port}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    # Predictions have by far the most to get wrong.
    weights = [20 if operation.path.endswith("/predict") else 2 if operation.body else 1 for operation in operations]
    statuses: Counter[int] = Counter()
    for operation, weight in zip(operations, weights, strict=True):
        for mode in modes:
            count = -(-num_cases * weight // (2 * sum(weights)))

            @seed(number)
            @settings(
                max_examples=count,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case) -> None:
                response = case.call()
                statuses[response.status_code] += 1
                assert response.status_code < 500, f"{case.as_curl_command()}\n{response.text}"

            with suppress(Unsatisfiable):  # any text is a name: nothing does not fit
                ask()
    return statuses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    models = (f"text={calibrated_model()}", f"sparse={sparse_model()}", f"dense={dense_model()}")
    with Service(*models) as service:
        statuses: Counter[int] = Counter()
        number = arguments.seed
        while (left := arguments.cases - statuses.total()) > 0:
            statuses += fuzz(service, left, number)
            number += 1
        assert not service.events("failed")
        assert service.stop() == 0
    print(f"{statuses.total():,} requests; by status: {dict(sorted(statuses.items()))}")


if __name__ == "__main__":
    main()
