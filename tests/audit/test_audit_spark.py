"""The same expressions on Spark: equal verdicts, reasons, exposures and gaps to those of DuckDB.

PySpark is in an environment of its own (`script/spark`); `script/test-spark` says where. One audit
covers every planted incident and a history with losses, since on Spark a query costs the same
however few records there are.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ibis.backends import BaseBackend

from kvairlock.audit import auditing
from kvairlock.audit.auditing import audit
from kvairlock.audit.histories import INCIDENTS, history
from kvairlock.audit.report import Class, Report
from kvairlock.audit.synthetic import Row
from kvairlock.audit.tables import embedded, evidence_of
from kvairlock.sink.columns import WIDE

WHERE = "KVAIRLOCK_SPARK"
SEED = 2026
LOST = 5
SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Few records and large queries: compiling each takes longer than interpreting it.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}

on_spark = pytest.mark.skipif(
    not os.environ.get(WHERE), reason="needs PySpark and Java: script/test-spark has both"
)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaseBackend]:
    sys.path.append(os.environ[WHERE])
    warehouse = tmp_path_factory.mktemp("warehouse")
    builder: Any = import_module("pyspark.sql").SparkSession.builder
    own = {"spark.sql.warehouse.dir": str(warehouse), "spark.pyspark.python": sys.executable}
    for name, value in {**SETTINGS, **own}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield ibis.pyspark.connect(session)
    session.stop()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Parquet file with every planted incident, and a history that lost records."""
    print(f"seed {SEED}")
    rows = [row for i, name in enumerate(INCIDENTS) for row in history(i, INCIDENTS[name]).rows]
    file = tmp_path_factory.mktemp("evidence") / "all.parquet"
    table = pa.Table.from_pylist(rows + _with_losses(), schema=WIDE)
    pq.write_table(table, file)
    return file


def _with_losses() -> list[Row]:
    rows = list(history(SEED).rows)
    lost = set(random.Random(SEED).sample(range(len(rows)), LOST))
    return [row for i, row in enumerate(rows) if i not in lost]


@pytest.fixture(scope="module")
def reports(spark: BaseBackend, made: Path) -> tuple[Report, Report]:
    """Return what DuckDB and Spark say of the same file."""
    engines = (embedded(), spark)
    here, there = (audit(evidence_of(engine.read_parquet(str(made)))) for engine in engines)
    return here, there


@on_spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_request_has_the_same_reasons_on_both_engines(
    reports: tuple[Report, Report],
) -> None:
    here, there = (list(report.verdicts()) for report in reports)
    assert here == there
    assert {verdict.verdict for verdict in here} == set(Class)


@on_spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_who_met_whom_and_what_is_not_covered_is_the_same_on_both_engines(
    reports: tuple[Report, Report],
) -> None:
    here, there = reports
    assert here.exposures
    assert there.exposures == here.exposures
    assert there.coverage == here.coverage
    assert here.coverage.spans


@pytest.mark.parametrize("dialect", ["clickhouse", "pyspark", "duckdb"])
def test_what_an_audit_asks_can_be_said_in_other_dialects(
    dialect: str, engine: BaseBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every table that an audit has an engine compute, as another engine would be asked for it.

    It says that the expressions compile. Only DuckDB and Spark have carried them out.
    """
    asked: list[str] = []
    keep = auditing._kept

    def written(table: ibis.Table) -> Any:
        asked.append(str(ibis.to_sql(table, dialect=dialect)))
        return keep(table)

    monkeypatch.setattr(auditing, "_kept", written)
    rows = list(history(SEED, INCIDENTS["the incident"]).rows)
    records = engine.create_table("said", pa.Table.from_pylist(rows, schema=WIDE), overwrite=True)
    audit(evidence_of(records))
    assert len(asked) == 7
    assert all("SELECT" in sql for sql in asked)
