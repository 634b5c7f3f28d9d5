"""`Dataflow`: where a program begins."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from rayad.dataflow import hooks
from rayad.dataflow import options as opt
from rayad.dataflow.compiling.unseen import unseen
from rayad.dataflow.config import KEY_GROUPS_MOST, RunConfig, ScalingConfig, check_timeout
from rayad.dataflow.items import FedInput, ItemsSource, LiveInput, as_items
from rayad.dataflow.logical_graph import LogicalGraph, NodeKind, check_count, check_name
from rayad.dataflow.operators.bad_records import OnError, check_on_error
from rayad.dataflow.options import LocalRuntime, Start, StartLocally
from rayad.dataflow.records.calling import checked_function, require_methods
from rayad.dataflow.records.type_variables import U
from rayad.dataflow.records.users_line import users_level
from rayad.dataflow.records.wrong_calls import explains_calls
from rayad.dataflow.records.wrong_names import Advising
from rayad.dataflow.resources import Asked, OfVertex, resources_asked
from rayad.dataflow.source import Source
from rayad.dataflow.streams import schemas, updates
from rayad.dataflow.streams.keyed_stream import KeyedStream, input_edge
from rayad.dataflow.streams.misplaced import OF_FLOW
from rayad.dataflow.streams.steps import tried
from rayad.dataflow.streams.stream import Stream
from rayad.dataflow.vertex import Vertex, check_reentrancy
from rayad.dataflow.without_effect import not_acted_on, not_asked_locally, not_set_aside
from rayad.progress import ConfigError, DataflowError, RayadError, arguments, show

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from rayad.actors.driver.job_handle import RayJobHandle
    from rayad.actors.job import Job, Result
    from rayad.actors.local.local_job import LocalJob
    from rayad.dataflow.plan import Plan
    from rayad.dataflow.streams.loops import Loop
    from rayad.incremental.collection import Collection

    Inputs = Sequence[Stream | KeyedStream]


@explains_calls
@opt.tells_options
class Dataflow(Advising):
    """A graph of sources, vertices and loops, and how to run it.

    >>> flow = Dataflow("wordcount")
    >>> words = flow.from_items(["to be", "or not to be"]).flat_map(str.split)
    >>> words.key_by(lambda w: w).count(name="counts").collect("counts").name
    'counts'
    """

    _not_here = OF_FLOW

    def __init__(self, name: str = "dataflow", *, epochs_together: int = 1) -> None:
        """An empty dataflow.

        ``epochs_together``: how many epochs collections take as one, at all inputs at once: those whose numbers, divided by it and rounded
        down, are equal. They have one table, at the last of them, for which less is computed than for each; and it is there when all inputs
        have passed that epoch. For many small epochs of which nobody needs each. Streams that are no collections keep all their epochs.
        """
        self.name = check_name(name, "the dataflow's name")
        self.graph = LogicalGraph(arguments.whole(epochs_together, "Dataflow(epochs_together)", least=1, most=1 << 62))

    def __repr__(self) -> str:
        return f"Dataflow({self.name!r}, {len(self.graph.nodes)} nodes)"

    def __dir__(self) -> list[str]:
        """What is meant for users: the class and the name. The graph is our affair."""
        return sorted({*dir(type(self)), "name"})

    def _repr_html_(self) -> str:
        """In a notebook: its operators, as a drawing."""
        from rayad.dataflow.compiling.drawing import draw_program

        return f"<div>{escape(repr(self))}</div>{draw_program(self)}"

    # -- sources -------------------------------------------------------------
    def source(
        self, source: Source, *, name: str | None = None, parallelism: int | None = None, base: str = "source", **asked: Unpack[Asked]
    ) -> Stream:
        """Read a :class:`Source`. It has as many replicas as the source has parts, up to the parallelism.

        ``num_cpus=...`` and so on reserve resources for each replica: see :meth:`Stream.map`.
        """
        if not isinstance(source, Source):
            raise DataflowError(f"source() was given {show(source, 60)}: it takes an instance of a subclass of rd.Source")
        require_methods(source, Source, ("list_parts", "build_part", "fingerprint"))
        resources = resources_asked("source", asked)
        node = self.graph.add(NodeKind.SOURCE, 0, name=name, base=base, op=source, parallelism=parallelism, resources=resources)
        return Stream(self, node.id)

    @overload
    def from_items(
        self, items: Iterable[dict[str, Any]], *, name: str | None = None, parts: int = 1, batch_rows: int = 4096
    ) -> Stream[dict[str, Any]]: ...
    @overload
    def from_items(self, items: Iterable[U], *, name: str | None = None, parts: int = 1, batch_rows: int = 4096) -> Stream[U]: ...
    def from_items(self, items: Iterable[Any], *, name: str | None = None, parts: int = 1, batch_rows: int = 4096) -> Stream:
        """Read records from memory, all in epoch 0: any iterable of records, or an Arrow table or data frame, whose rows are the
        records."""
        source = ItemsSource([as_items(items, "items")], batch_rows, parts)
        source.one_epoch = True
        return self.source(source, name=name, base="items")

    @overload
    def from_epochs(
        self, epochs: Iterable[Iterable[dict[str, Any]]], *, name: str | None = None, parts: int = 1, batch_rows: int = 4096
    ) -> Stream[dict[str, Any]]: ...
    @overload
    def from_epochs(
        self, epochs: Iterable[Iterable[U]], *, name: str | None = None, parts: int = 1, batch_rows: int = 4096
    ) -> Stream[U]: ...
    def from_epochs(self, epochs: Iterable[Iterable[Any]], *, name: str | None = None, parts: int = 1, batch_rows: int = 4096) -> Stream:
        """Read records from memory: item i of the outer list holds the records of epoch i."""
        if isinstance(epochs, (str, bytes, Mapping)) or not isinstance(epochs, Iterable):
            raise DataflowError(f"from_epochs was given {show(epochs, 60)}: give a list with one list of records for each epoch")
        lists = [as_items(items, f"epoch {i}") for i, items in enumerate(epochs)]
        return self.source(ItemsSource(lists, batch_rows, parts), name=name, base="epochs")

    def input(self, name: str, *, epoch_s: float | None = None) -> Stream:
        """Declare a live input: after ``submit()``, records are sent to it through ``job.input(name)``.

        ``epoch_s``: seconds after which the input advances to the next epoch by itself, whether records came or not, so that results appear
        and windows of :meth:`Stream.with_processing_time` fire without a call of ``advance_to``. None: epochs advance only when
        ``advance_to`` is called.
        """
        length_s = None if epoch_s is None else arguments.number(epoch_s, f"flow.input({name!r}, epoch_s)")
        node = self.graph.add(NodeKind.INPUT, 0, name=name, base="input", op=LiveInput(length_s))
        return Stream(self, node.id)

    def collection(self, name: str, *, schema: pa.Schema | None = None) -> Collection:
        """Declare a live collection: after ``submit()``, records are inserted and removed through ``job.collection(name)``.

        ``schema``: the fields of its records and their types, for :meth:`sql`; see :meth:`rayad.Collection.with_schema`.
        """
        return hooks.call("live_collection", self, name, schema)  # type: ignore[no-any-return]

    def sql(self, query: str, /, **tables: Collection) -> Collection:
        """The result of a query over collections, kept up to date as they change: records with a field for each column.

        Args:
            query: a SELECT, as DataFusion has it (``pip install 'rayad[sql]'``), which plans it; docs/sql.md says what is supported.
            tables: the collections that it reads, by the name that it has for them. Their columns are known behind sources with a schema
                (Arrow, Parquet, ...), ``flow.collection(name, schema=...)``, :meth:`rayad.Collection.with_schema`, and another ``sql``.

        Raises:
            DataflowError: the query is wrong, or not supported, or the columns of a table are not known. It names what, and what to do.

        >>> import pyarrow as pa, rayad as rd
        >>> flow = rd.Dataflow("sales")
        >>> orders = flow.from_arrow(pa.table({"customer": ["ann", "bob", "ann"], "amount": [1, 2, 3]})).as_collection()
        >>> totals = flow.sql("select customer, sum(amount) as total from orders group by customer", orders=orders)
        >>> _ = totals.changes().collect("totals")
        >>> sorted(record["total"] for _, (record, _) in flow.run(runtime="local")["totals"])
        [2, 4]
        """
        return hooks.call("sql", self, query, tables)  # type: ignore[no-any-return]

    def from_arrow(self, table: Any, *, epoch: str | None = None, name: str | None = None, **options: Unpack[opt.FromArrow]) -> Stream:
        """Read an Arrow table or batches, or anything with ``__arrow_c_stream__``: DataFrames of pandas and Polars, relations of DuckDB,
        readers.

        It stays in columns, and is read once and whole, when the program is written. ``epoch`` names an integer column with the epoch of
        each row. For ``options`` see :class:`rayad.integrations.ArrowSource`.
        """
        return self.source(hooks.call("from_arrow", table, epoch=epoch, **options), name=name, base="arrow")

    def from_pandas(
        self, frame: pd.DataFrame, *, epoch: str | None = None, name: str | None = None, **options: Unpack[opt.FromPandas]
    ) -> Stream:
        """Read a pandas DataFrame, in columns.

        Named levels of its index become columns; an index without a name is dropped if it numbers the rows, and refused otherwise. NaN in
        pandas' own floats is null. ``epoch`` names an integer column with the epoch of each row. For ``options`` see
        :class:`rayad.integrations.PandasSource`. Raises DataflowError naming a column that Arrow cannot hold exactly.
        """
        return self.source(hooks.call("from_pandas", frame, epoch=epoch, **options), name=name, base="pandas")

    def from_polars(
        self, frame: pl.DataFrame | pl.LazyFrame, *, epoch: str | None = None, name: str | None = None, **options: Unpack[opt.FromPolars]
    ) -> Stream:
        """Read a Polars DataFrame, or a LazyFrame, which is collected when the program is written; in columns.

        ``epoch`` names an integer column with the epoch of each row. For ``options`` see :class:`rayad.integrations.PolarsSource`. Raises
        DataflowError naming a column that Arrow cannot hold.
        """
        return self.source(hooks.call("from_polars", frame, epoch=epoch, **options), name=name, base="polars")

    def from_spark(self, frame: Any, *, epoch: str | None = None, name: str | None = None, **options: Unpack[opt.FromSpark]) -> Stream:
        """Read a Spark DataFrame through RayDP: columnar, and by reference where Spark runs on the same cluster.

        Of a streaming DataFrame each micro-batch becomes one epoch, read exactly once; ``checkpoint=``, ``commit=`` and the other options
        are those of :class:`rayad.integrations.SparkStream`. The job then ends when the query ends.
        """
        found = hooks.call("from_spark", frame, epoch=epoch, **options)
        if isinstance(found, FedInput):
            return self._fed(found, name)
        return self.source(found, name=name, base="spark")

    def _fed(self, fed: FedInput, name: str | None) -> Stream:
        """References go to whichever replica has room, and are opened there."""
        node = self.graph.add(NodeKind.INPUT, 0, name=name, base=fed.base, op=fed)
        return Stream(self, node.id).rebalance(name=f"{node.name}.open").map_batches(fed.open)

    def from_ray_dataset(
        self, dataset: Any, *, epoch: str | None = None, name: str | None = None, **options: Unpack[opt.FromRayDataset]
    ) -> Stream:
        """Read a Ray Dataset: columnar, and by reference."""
        return self.source(hooks.call("from_ray_dataset", dataset, epoch=epoch, **options), name=name, base="ray-data")

    def read_text(self, path: Any, *, name: str | None = None, **options: Unpack[opt.ReadText]) -> Stream:
        """Read the lines of text files, one record each."""
        return self.source(hooks.call("read_text", path, **options), name=name, base="text")

    def read_csv(
        self,
        path: Any,
        *,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
        **options: Unpack[opt.ReadCsv],
    ) -> Stream:
        """Read CSV files in columns. For ``options`` see :class:`rayad.integrations.CsvSource`.

        With ``on_error="skip"`` lines that do not fit ``schema``, which is then required, are set aside: ``stream.errors`` holds them, and
        ``max_errors`` limits their number (see :meth:`Stream.map`). Lines are then read one record at a time.
        """
        if check_on_error("read_csv", on_error, max_errors) == "skip":
            return self._lines("csv", hooks.call("read_csv_lines", path, **options), name, max_errors)
        return self.source(hooks.call("read_csv", path, **options), name=name, base="csv")

    def read_json(
        self,
        path: Any,
        *,
        name: str | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
        **options: Unpack[opt.ReadJson],
    ) -> Stream:
        """Read JSON-lines files in columns. For ``options`` see :class:`rayad.integrations.JsonLinesSource`, for ``on_error`` see
        :meth:`read_csv`."""
        if check_on_error("read_json", on_error, max_errors) == "skip":
            return self._lines("json", hooks.call("read_json_lines", path, **options), name, max_errors)
        return self.source(hooks.call("read_json", path, **options), name=name, base="json")

    def _lines(self, base: str, found: tuple[Source, Any], name: str | None, errors_max: int | None) -> Stream:
        """Lines, and the step that makes columns of them and sets aside those that do not fit."""
        source, parse = found
        self.graph.require_free(name)
        return tried(self.source(source, base=f"{name or base}.lines"), parse, name, errors_max)

    def read_parquet(self, path: Any, *, name: str | None = None, **options: Unpack[opt.ReadParquet]) -> Stream:
        """Read Parquet files in columns. For ``options`` see :class:`rayad.integrations.ParquetSource`."""
        return self.source(hooks.call("read_parquet", path, **options), name=name, base="parquet")

    def read_postgres(self, uri: str, table: str, *, key: str, name: str | None = None, **options: Unpack[opt.ReadPostgres]) -> Stream:
        """Read a PostgreSQL table in columns, as it is when the run begins. Its rows are split into ranges of the column ``key``.

        For ``options`` see :class:`rayad.integrations.postgres.PostgresSource`.
        """
        return self.source(hooks.call("read_postgres", uri, table, key=key, **options), name=name, base="postgres")

    def from_folder(self, path: Any, pattern: str = "*", *, name: str | None = None, **options: Unpack[opt.FromFolder]) -> Stream:
        """Read the files of a folder or bucket, then wait for new ones; each file is one epoch. The input never ends by itself.

        For ``options``, such as a file that ends the input, see :class:`rayad.integrations.folder.FolderSource`.
        """
        return self.source(hooks.call("from_folder", path, pattern, **options), name=name, base="folder")

    def from_kafka(self, servers: str, topic: str, *, name: str | None = None, **options: Unpack[opt.FromKafka]) -> Stream:
        """Read a Kafka topic in columns. The input never ends by itself. For ``options`` see
        :class:`rayad.integrations.kafka.KafkaSource`."""
        return self.source(hooks.call("from_kafka", servers, topic, **options), name=name, base="kafka")

    # -- vertices and loops ------------------------------------------------------
    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, inputs: Inputs, outputs: Literal[1] = 1, **how: Unpack[OfVertex]) -> Stream[Any]: ...
    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, inputs: Inputs, outputs: Literal[0], **how: Unpack[OfVertex]) -> None: ...
    @overload
    def vertex(
        self, vertex: Callable[[], Vertex], *, inputs: Inputs, outputs: Literal[2], **how: Unpack[OfVertex]
    ) -> tuple[Stream, Stream]: ...
    @overload
    def vertex(self, vertex: Callable[[], Vertex], *, inputs: Inputs, outputs: int, **how: Unpack[OfVertex]) -> Any: ...
    def vertex(
        self,
        vertex: Callable[[], Vertex],
        *,
        inputs: Inputs,
        outputs: int = 1,
        name: str | None = None,
        parallelism: int | None = None,
        **asked: Unpack[Asked],
    ) -> Any:
        """Add a stateful vertex from a class or factory. Returns one Stream; a tuple of Streams for several outputs; None for no output.

        Stream i of ``inputs`` arrives in ``on_recv`` as ``edge`` i. A keyed input is exchanged by its key. An unkeyed input stays in its
        replica where replica counts allow, so a vertex with unkeyed inputs only has as many replicas as the vertex that feeds it.

        ``num_cpus``, ``num_gpus``, ``memory`` (bytes) and ``resources`` are reserved for each replica on its node, as in Ray Data.
        """
        if not callable(vertex):
            raise DataflowError(
                f"vertex() was given {show(vertex, 60)}: give the class (or a function that makes an instance), so that each replica "
                "has its own"
            )
        if isinstance(vertex, type) and not issubclass(vertex, Vertex):
            raise DataflowError(f"vertex() was given the class {vertex.__name__}: it must be a subclass of rd.Vertex")
        checked_function(vertex, "vertex()")
        if isinstance(vertex, type) and issubclass(vertex, Vertex):
            require_methods(vertex, Vertex, ("setup", "on_recv", "on_notify", "checkpoint", "restore"))
            check_reentrancy(vertex.reentrancy, f"vertex() was given the class {vertex.__name__}, which")
        outputs = check_count(outputs, "outputs", least=0)
        if isinstance(inputs, (Stream, KeyedStream)) or not isinstance(inputs, Sequence):
            raise DataflowError(f"vertex() was given inputs={show(inputs)}: give a list of streams")
        if not inputs:
            raise DataflowError("vertex() was given no inputs: use flow.source(MySource()) for something that makes records by itself")
        edges = [input_edge(self, stream) for stream in inputs]
        scope = scope_of(inputs[0])
        base = getattr(vertex, "__name__", type(vertex).__name__).strip("<>") or "vertex"
        node = self.graph.add(
            NodeKind.VERTEX,
            scope,
            name=name,
            base=base,
            op=vertex,
            inputs=edges,
            outputs=outputs,
            parallelism=parallelism,
            resources=resources_asked("vertex", asked),
        )
        node.options[updates.OF_USER] = True
        streams = tuple(Stream(self, node.id, port) for port in range(outputs))
        return streams[0] if outputs == 1 else streams if outputs else None

    def loop(self, name: str | None = None, *, inside: Loop | None = None) -> Loop:
        """Create a loop context: ``enter`` streams, make a ``feedback``, ``leave``. See :class:`Loop`."""
        from rayad.dataflow.streams.loops import Loop

        if inside is not None and not isinstance(inside, Loop):
            raise DataflowError(f"loop: inside is {show(inside, 60)}: it must be a loop, made by flow.loop(), or None")
        return Loop(self, name, inside.scope if inside is not None else None)

    # -- looking and running -------------------------------------------------------
    @property
    def live_inputs(self) -> list[str]:
        """Names of the inputs that are fed through ``job.input(name)``. A job that has any runs until they are closed."""
        return [node.name for node in self.graph.nodes if node.kind is NodeKind.INPUT and not isinstance(node.op, FedInput)]

    def plan(
        self,
        parallelism: Any = None,
        *,
        scaling: ScalingConfig | None = None,
        key_groups: int | None = None,
        fingerprints: bool = False,
    ) -> Plan:
        """Compile to stages. Raises DataflowError if the graph is wrong. With ``fingerprints`` it also asks each source for its
        fingerprint."""
        from rayad.dataflow.compiling.compiler import compile_plan
        from rayad.dataflow.compiling.fingerprints import with_fingerprints

        config = _scaling_of(scaling, parallelism, "plan")
        if key_groups is not None:
            key_groups = arguments.whole(key_groups, "plan: key_groups", least=1, most=KEY_GROUPS_MOST)
        plan = compile_plan(self, config, key_groups=key_groups)
        return with_fingerprints(plan) if arguments.flag(fingerprints, "plan: fingerprints") else plan

    def to_mermaid(self, parallelism: Any = None) -> str:
        """Draw the graph as a Mermaid flowchart: loops are boxes, stages have colours."""
        from rayad.dataflow.compiling.explain import to_mermaid

        return to_mermaid(self, self.plan(parallelism))

    def explain(self, parallelism: Any = None) -> str:
        """Describe the plan: stages, replicas, fused operators, how edges are partitioned, and at which operator columns become rows,
        and why.

        The last needs columns that are known (:attr:`Stream.schema`).
        """
        from rayad.dataflow.compiling.explain import explain

        return "\n".join([explain(self, self.plan(parallelism)), *schemas.rows_begin(self.graph), *schemas.not_repeatable(self.graph)])

    @overload
    def submit(
        self,
        run: RunConfig | None = None,
        scaling: ScalingConfig | None = None,
        *,
        runtime: Literal["ray"] = "ray",
        detached: bool = False,
        **how: Unpack[Start],
    ) -> RayJobHandle: ...
    @overload
    def submit(
        self,
        run: RunConfig | None = None,
        scaling: ScalingConfig | None = None,
        *,
        runtime: Literal["local"],
        **how: Unpack[StartLocally],
    ) -> LocalJob: ...
    @overload
    def submit(
        self,
        run: RunConfig | None = None,
        scaling: ScalingConfig | None = None,
        *,
        runtime: str,
        detached: bool = False,
        **how: Unpack[StartLocally],
    ) -> Job: ...
    def submit(
        self,
        run: RunConfig | None = None,
        scaling: ScalingConfig | None = None,
        *,
        runtime: str = "ray",
        parallelism: Any = None,
        seed: int = 0,
        resume: str | int | None = None,
        map_state: Mapping[str, Any] | None = None,
        new: Sequence[str] = (),
        gone: Sequence[str] = (),
        detached: bool = False,
        **options: Unpack[LocalRuntime],
    ) -> Any:
        """Start the dataflow and return a job handle at once. ``resume`` is short for ``RunConfig(resume=...)``.

        On Ray a job ends with this process, unless ``detached=True``. A detached job lives as long as the cluster, which must not be one
        that this process started: any process finds it by name (:func:`rayad.attach`), sends to its live inputs, steers it, and fetches its
        results, once, at most ``RunConfig.keep_results_s`` after its end. A job cannot be detached if it is to survive failures
        (``max_failures``) without keeping snapshots, if this process feeds it (a Spark stream) or owns objects that it reads, or if program
        and embedded data exceed 8 MB.

        A resume is refused if vertices or sinks of the snapshot differ from those of the program; the error shows the call that would work.
        ``new`` names vertices and sinks that may start empty, ``gone`` names those that were removed and whose state may be dropped. Both
        have no effect on a snapshot that already fits the program, so they can stay for later starts with ``resume="latest"``.

        ``map_state`` converts the state of a snapshot of another version of the program, given by its number or path. It is a dict. A key
        that is a vertex of the snapshot maps to its name here, to a function from its table to a new one (tables as in
        :func:`rayad.read_state` and :func:`rayad.write_state`), to ``(name, function)``, or to None to drop its state. A key that is a
        vertex of this program maps to its table, or to ``{}`` to start empty. Names of sinks are prefixed with ``sink:``. Unchanged
        vertices need not be named.
        """
        if run is not None and not isinstance(run, RunConfig):
            raise DataflowError(f"submit() was given {show(run, 60)} as first argument: it takes a RunConfig, then a ScalingConfig")
        arguments.choice(runtime, "runtime", "ray", "local", error=ConfigError)
        of_session = hooks.call("session_scaling", parallelism) if scaling is None and runtime == "ray" else None
        scaling = of_session or _scaling_of(scaling, parallelism, "submit")
        seed = arguments.whole(seed, "seed", error=ConfigError)
        here: dict[str, Any] = {**options}
        if arguments.flag(detached, "submit(detached)", error=ConfigError):
            if runtime != "ray":
                raise ConfigError(f"submit(detached=True): runtime={runtime!r} ends with this process: use runtime='ray'")
            here["detached"] = True
        if resume is not None:
            if run is not None and run.resume not in (None, resume):
                raise DataflowError(f"resume={resume!r} and RunConfig(resume={run.resume!r}) were given: give one of them")
            run = replace(run or RunConfig(), resume=resume)
        new, gone = (_names_of(names, what) for names, what in ((new, "new"), (gone, "gone")))
        if map_state is not None or new or gone:
            run = replace(run or RunConfig(), resume=hooks.call("map_state", self, run or RunConfig(), scaling, map_state, new, gone))
        self._check_sources(run or RunConfig(), runtime)
        config = run or RunConfig()
        unkept = [*not_acted_on(config, scaling, runtime, seed), *not_asked_locally(self.graph, runtime)]
        nothing = [] if config.keeps_snapshots else unseen(self.graph)  # else read_state() shows what it keeps
        for promise in [*unkept, *not_set_aside(self.graph, config, runtime), *nothing]:
            warnings.warn(promise, UserWarning, stacklevel=users_level())
        if run is None or not run.keeps_snapshots:  # else the runtime finds out whether the job begins afresh
            self._check_sinks()
        return hooks.call("submit", self, run or RunConfig(), scaling, runtime=runtime, seed=seed, **here)

    def _check_sources(self, run: RunConfig, runtime: str) -> None:
        for node in self.graph.nodes:
            if node.kind in (NodeKind.SOURCE, NodeKind.INPUT):
                try:
                    node.op.check_run(run, runtime)
                except RayadError as error:
                    raise type(error)(f"{node.name!r} ({node.where}): {error}") from error

    def _check_sinks(self) -> None:
        for node in self.graph.nodes:
            if node.kind is NodeKind.SINK:
                try:
                    node.op.check()
                except RayadError as error:
                    raise type(error)(f"sink {node.options['key']!r} ({node.where}): {error}") from error

    def run(
        self,
        run: RunConfig | None = None,
        scaling: ScalingConfig | None = None,
        *,
        runtime: str = "ray",
        parallelism: Any = None,
        seed: int = 0,
        resume: str | int | None = None,
        map_state: Mapping[str, Any] | None = None,
        new: Sequence[str] = (),
        gone: Sequence[str] = (),
        timeout_s: float | None = None,
        progress: bool | None = None,
        **options: Unpack[LocalRuntime],
    ) -> Result:
        """Run to the end and return the results: a mapping from sink name to what that sink gives.

        ``runtime="ray"`` joins the cluster that this process is in, or starts one. ``runtime="local"`` runs everything in this process, in
        an order drawn from ``seed``: equal programs and seeds take equal steps. Only snapshot intervals and timeouts then follow the clock;
        ``clock=f`` replaces it by a function without arguments. The local runtime also refuses functions that change shared records in
        place; ``check_records=False`` saves the cost of that check.

        ``resume="latest"`` resumes from the newest snapshot of the job of this name, a path from that snapshot. ``map_state``, ``new`` and
        ``gone`` are those of :meth:`submit`.

        After ``timeout_s`` seconds an unfinished job is cancelled and TimeoutError is raised; use ``submit()`` and ``job.wait(timeout_s)``
        to leave it running.

        ``progress``: whether to show how far the job is: the share of the input that has been read, records a second, epochs, the slowest
        vertex, failures survived. On a terminal this is one line, which disappears at the end; in a notebook one output; elsewhere a line
        on stderr every 10 s, and none for shorter jobs. None: shown, unless the environment has ``RAYAD_PROGRESS=0``.

        Ctrl-C cancels the job and raises KeyboardInterrupt, which shows as one line.
        """
        check_timeout(timeout_s, "run(timeout_s=...)")
        live = self.live_inputs
        if live:
            raise DataflowError(
                f"{self.name!r} has live inputs {live}: use submit(), feed job.input({live[0]!r}) and close() it, then job.wait()"
            )
        asked: dict[str, Any] = {"runtime": runtime, "parallelism": parallelism, "seed": seed, **options}
        submit = partial(self.submit, run, scaling, resume=resume, map_state=map_state, new=new, gone=gone, **asked)
        result: Result = hooks.call("run", self.name, RunConfig() if run is None else run, submit, timeout_s=timeout_s, progress=progress)
        return result


def _names_of(value: Any, what: str) -> tuple[str, ...]:
    """``new=`` or ``gone=`` of a resume."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise DataflowError(f"submit({what}={show(value, 60)}): it takes a list of names of vertices and sinks, such as {what}=['counts']")
    return tuple(value)


def _scaling_of(scaling: Any, parallelism: Any, what: str) -> ScalingConfig:
    """How many replicas were asked for, as a ScalingConfig or by ``parallelism=``."""
    if scaling is None:
        return ScalingConfig(parallelism=1 if parallelism is None else parallelism)
    if not isinstance(scaling, ScalingConfig):
        raise DataflowError(
            f"{what}() was given {show(scaling, 60)} as ScalingConfig: it takes rd.ScalingConfig(...); for numbers of replicas alone "
            "give parallelism=2, or parallelism={name: 2}"
        )
    if parallelism is not None:
        raise DataflowError("both a ScalingConfig and parallelism= were given: give one of them")
    return scaling


def scope_of(stream: Stream | KeyedStream) -> int:
    """The scope that a stream is in."""
    return stream.scope if isinstance(stream, Stream) else stream.stream.scope
