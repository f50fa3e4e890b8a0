"""Slurm as an engine, by its command-line programs.

Each call has a deadline and a limit on what it may print. They run in an almost empty environment, and jobs with
`--export=ALL` of it: any other `--export` makes Slurm load the user's environment for each task, which is 20 times as
slow. Starts of one batch are one array, in which each task finds its own start by a link with its number; if that is
over soon, it carries out others (`slurm_arrays`).
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import selectors
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from dibs.engines import slurm_arrays, slurm_text
from dibs.engines.protocol import Caps, Engine, Needs, Node, Refused, Seen, Start, Unavailable
from dibs.model import units
from dibs.system import paths
from dibs.system.configuration.engines import EngineSettings

T = TypeVar("T")

#: Seconds for one call. Without its controller a program gives up after about 9 by itself.
DEADLINE_S = 20.0
#: Bytes that a call may print: 100,000 jobs are about 40 MB.
MOST_BYTES = 64 * 2**20
#: Tasks of one array; Slurm's default limit is 1001.
MOST_TASKS = 1000
#: References on one command line.
MOST_REFS = 5000
#: Seconds for which a start that ended without a trace may still leave one: other machines see new files in a network
#: folder only when their caches expire, on a local disk at once.
NETWORK_GRACE_S, LOCAL_GRACE_S = 60.0, 3.0
#: Seconds after its begin during which a task of an array takes further starts.
REUSE_S = 20.0
#: Slurm's nice for one step of our priority, and its range for users.
NICE_STEP, MOST_NICE = 100, 100_000


#: Options of scancel to signal runners. Without the state it waits until a job runs that still waits.
SIGNAL_RUNNING = ("-Q", "--state=RUNNING", "--batch")

#: What Slurm's programs say when they did not reach the controller, or it is not ready.
UNREACHABLE = (
    "unable to contact slurm controller", "connection refused", "connection timed out", "communication connection",
    "zero bytes were transmitted", "socket timed out", "unable to process configuration", "munge", "slurmdbd",
    "transport endpoint", "unexpected message received", "backup controller", "protocol authentication error",
)  # fmt: skip


def make(settings: EngineSettings, environ: Mapping[str, str]) -> Engine:
    """Return the engine of a cluster."""
    return Slurm(settings, environ)


class Slurm:
    """One cluster. All calls are made by one thread, but `refuse`."""

    kind = "slurm"
    problem = ""

    def __init__(self, settings: EngineSettings, environ: Mapping[str, str]) -> None:
        assert settings.shared is not None
        self.name = settings.name
        self._conf = settings.conf or environ.get("SLURM_CONF")
        self._environ = {"PATH": environ.get("PATH", os.defpath), "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
        if self._conf is not None:
            self._environ["SLURM_CONF"] = str(self._conf)
        self._arrays = slurm_arrays.Arrays(self.name, settings.shared / "arrays")
        #: The ids of arrays with starts that are over; whether tasks of theirs still wait is not known.
        self._to_check: set[str] = set()
        self._reuse_s = REUSE_S if settings.reuse is None else settings.reuse
        kind = paths.network_type(settings.shared, paths.read_text("/proc/self/mountinfo"))
        grace_s = LOCAL_GRACE_S if kind is None else NETWORK_GRACE_S
        self.caps = Caps(holds_queue=True, look_ahead=0, grace_s=grace_s)

    # -- asking

    @property
    def has_chores(self) -> bool:
        """Tell whether tasks of arrays may wait in Slurm although their starts are over."""
        return bool(self._to_check)

    def nodes(self) -> list[Node]:
        """Return all nodes, also those that are down."""
        return _read(slurm_text.node_lines, self._ask("sinfo", "-h", "-N", "-O", slurm_text.NODE_FORMAT))

    def refuse(self, needs: Needs, nodes: Sequence[Node]) -> str | None:
        """Return why no node can ever satisfy a request. Slurm itself lets some of these wait forever."""
        problem = slurm_text.options_problem(needs.options)
        if problem is not None or not nodes:
            return problem
        # With a type of its own the request may mean any name that the site gave its GPUs.
        typed = [node for node in nodes if not needs.gpu_type or _is_type(node, needs.gpu_type)]
        if not typed:
            kinds = ", ".join(sorted({node.gpu_type for node in nodes if node.gpu_type}))
            return f'no node of {self.name} has a GPU of type "{needs.gpu_type}" (it has: {kinds or "no names"})'
        for what, asked, most in (
            ("GPUs", needs.gpus, max(node.gpus for node in typed)),
            ("CPUs", needs.cpus, max(node.cpus for node in typed)),
        ):
            if asked > most:
                return f"no node of {self.name} has {asked} {what}; the largest has {most}"
        if needs.mem > (mem := max(node.mem for node in typed)):
            wanted, largest = units.format_size(needs.mem), units.format_size(mem)
            return f"no node of {self.name} has {wanted} of memory; the largest has {largest}"
        return None

    def poll(self, refs: Sequence[str]) -> Mapping[str, Seen]:
        """Return what became of starts; what Slurm has forgotten is missing."""
        asked = [*refs, *(f"{array}_0" for array in self._to_check)]
        lines: dict[str, Seen] = {}
        ids = slurm_text.base_ids(asked)
        for first in range(0, len(ids), MOST_REFS):
            lines |= {line.ref: line.seen for line in self._jobs("-j", ",".join(ids[first : first + MOST_REFS]))}
        # After the answer: a start that was claimed by another task meanwhile then has the state of that task.
        arrays = self._arrays.of(asked)
        found: dict[str, Seen] = {}
        for ref in refs:
            array, _, number = ref.partition("_")
            said = arrays[array].seen(number, lines) if array in arrays else lines.get(ref)
            if said is not None:
                found[ref] = said
        idle = [(one, numbers) for one in arrays.values() if (numbers := one.idle(lines))]
        if idle:
            # Those that begin just now do nothing either.
            self._tell("scancel", "-Q", *(slurm_arrays.expression(one.ref, numbers) for one, numbers in idle))
        for one, numbers in idle:
            one.note_cancelled(numbers)
        self._to_check.clear()
        return found

    def find(self, keys: Iterable[str]) -> Mapping[str, Sequence[str]]:
        """Return the jobs of keys, by their names, or by the links of the arrays that they are in."""
        wanted = set(keys)
        arrays = self._arrays.keys()
        found: dict[str, list[str]] = defaultdict(list)
        for line in self._jobs("-u", str(os.geteuid())):
            if line.name in wanted:
                found[line.name].append(line.ref)
            elif line.name in arrays:
                array, _, number = line.ref.partition("_")
                key = arrays[line.name].get(number)
                if key in wanted:
                    self._arrays.accept(array, line.name)
                    found[key].append(line.ref)
        return found

    def _jobs(self, *which: str) -> list[slurm_text.JobLine]:
        try:
            text = self._ask("squeue", "-h", "-r", "-t", "all", "-O", slurm_text.JOB_FORMAT, *which)
        except Unavailable as error:
            # Slurm's answer about a single job that it has forgotten; of several it just leaves out those.
            if "Invalid job id specified" in str(error):
                return []
            raise
        return _read(lambda text: list(slurm_text.job_lines(text)), text)

    # -- telling

    def submit(self, starts: Sequence[Start]) -> Mapping[str, str | Refused]:
        """Submit starts: those of one batch as an array, the others one by one."""
        answers: dict[str, str | Refused] = {}
        for group in _groups(starts):
            if len(group) == 1:
                answers |= self._submit_one(group[0])
            else:
                answers |= self._submit_array(group)
        return answers

    def _submit_one(self, start: Start) -> dict[str, str | Refused]:
        words = [f"--job-name={start.key}", f"--output={start.engine_output}"]
        answer = self._sbatch(start, words, slurm_text.script(start.argv))
        return {start.key: answer}

    def _submit_array(self, group: Sequence[Start]) -> dict[str, str | Refused]:
        """Submit starts that differ only in their folder as one array."""
        name = f"{group[0].key}-{os.urandom(3).hex()}"
        links = self._arrays.make(name, group)
        first = group[0]
        if first.needs.time_limit_s is not None:
            # What a task takes at the last moment has its whole limit too.
            longer = first.needs._replace(time_limit_s=first.needs.time_limit_s + self._reuse_s)
            first = first._replace(needs=longer)
        output = f"{links}/%a/{os.path.basename(first.engine_output)}"
        argv = (*first.argv[:-1], os.path.basename(first.argv[-1]))
        words = [f"--job-name={name}", f"--output={output}", f"--array=0-{len(group) - 1}"]
        further = (f"{self._reuse_s:g}", str(len(group)))
        answer = self._sbatch(first, words, slurm_text.script(argv, str(links), further))
        if isinstance(answer, Refused):
            if not answer.may_be_there:
                # Otherwise its tasks need the folder, and `find` knows them by it.
                self._arrays.remove(links)
            return {start.key: answer for start in group}
        self._arrays.accept(answer, name)
        return {start.key: f"{answer}_{number}" for number, start in enumerate(group)}

    def _sbatch(self, start: Start, words: Sequence[str], script: str) -> str | Refused:
        # Those of the user come last: an option without its value must not swallow one of ours.
        command = ["sbatch", "--parsable", *words, *self._fixed(start)]
        code, text, error = self._run(command, script)
        if code != 0:
            told = slurm_text.refusal_words(error)
            if _is_unreachable(error):
                raise Unavailable(told)
            return Refused(told, is_final=slurm_text.is_final(error))
        return slurm_text.job_id(text) or Refused(f"sbatch printed no job id but {text[:80]!r}", may_be_there=True)

    def _fixed(self, start: Start) -> list[str]:
        """Return the options that all starts like this one have in common."""
        nice = max(-MOST_NICE, min(MOST_NICE, -start.priority * NICE_STEP))
        # Raising one's own jobs above those of others is for administrators: a lower priority becomes a higher nice.
        words = slurm_text.request_words(start.needs, max(0, nice))
        return ["--export=ALL", "--no-requeue", "--chdir=/", "--open-mode=append", *words]

    def stop(self, refs: Sequence[str], *, now: bool) -> None:
        """End jobs: those that wait at once; those that run by Slurm's own TERM and KILL, or by TERM to the runner."""
        tasks = self._tasks(refs)
        for first in range(0, len(tasks), MOST_REFS):
            some = tasks[first : first + MOST_REFS]
            if now:
                self._tell("scancel", "-Q", *some)
            else:
                self._tell("scancel", "-Q", "--state=PENDING", *some)
                self._tell("scancel", *SIGNAL_RUNNING, "--signal=TERM", *some)

    def poke(self, ref: str) -> None:
        """Let the runner read its orders."""
        for task in self._tasks([ref]):
            self._tell("scancel", *SIGNAL_RUNNING, "--signal=USR1", task)

    def _tasks(self, refs: Sequence[str]) -> list[str]:
        """Return the jobs and tasks that carry out starts, without those of starts that are over."""
        arrays = self._arrays.of(refs)
        found = []
        for ref in refs:
            array, _, number = ref.partition("_")
            task = arrays[array].task_of(number) if array in arrays else number
            if task is not None:
                found.append(f"{array}_{task}" if task else array)
        return found

    def script(self, start: Start) -> str:
        """Return a batch script with the same options and the same runner."""
        options = [f"--job-name={start.key}", f"--output={start.engine_output}", *self._fixed(start)]
        lines = [f"#SBATCH {option}" for option in options]
        first, _, rest = slurm_text.script(start.argv).partition("\n")
        return "\n".join([first, *lines, rest])

    def forget(self, refs: Sequence[str]) -> None:
        """Have arrays looked at again: tasks that are not needed may wait. Slurm's own memory ends by itself."""
        self._to_check |= {ref.partition("_")[0] for ref in refs if "_" in ref}

    # -- processes

    def _ask(self, *command: str) -> str:
        code, text, error = self._run(command)
        if code != 0:
            why = slurm_text.trouble_words(error, self.name)
            raise Unavailable(why or f"{command[0]} exited with code {code}")
        return text

    def _tell(self, *command: str) -> None:
        """Run a command whose failure only matters if the cluster did not get it: jobs may have ended meanwhile."""
        code, _, error = self._run(command)
        if code != 0 and _is_unreachable(error):
            raise Unavailable(slurm_text.trouble_words(error, self.name))

    def _run(self, command: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        """Run a program within its deadline; return its code and what it printed."""
        if self._conf is not None and not os.path.isfile(self._conf):
            # Slurm's programs would wait a minute for it.
            raise Unavailable(f"{self._conf} does not exist")
        try:
            process = subprocess.Popen(
                command, env=self._environ, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError as error:
            why = "it is not on the PATH of the daemon; in a shell that has it, type: dibs daemon restart"
            raise Unavailable(f"{command[0]} cannot be run: {why}") from error
        except OSError as error:
            raise Unavailable(f"{command[0]} cannot be run: {error.strerror}") from error
        with process:
            try:
                out, told = _communicate(process, stdin.encode(errors="surrogateescape"))
            except BaseException:
                # The whole session: a wrapper around the program would leave it running.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode, out.decode(errors="replace"), told.decode(errors="replace")


def _communicate(process: subprocess.Popen[bytes], stdin: bytes) -> tuple[bytearray, bytearray]:
    """Return what a program prints until it ends; raise if that takes too long, or is too much."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(stdin)
        process.stdin.close()
    texts = {process.stdout: bytearray(), process.stderr: bytearray()}
    give_up_at = time.monotonic() + DEADLINE_S
    name = os.path.basename(str(process.args[0])) if isinstance(process.args, list | tuple) else "a program"
    with selectors.DefaultSelector() as selector:
        for pipe in texts:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left_s = give_up_at - time.monotonic()
            ready = selector.select(left_s) if left_s > 0 else []
            if not ready:
                raise Unavailable(f"{name} gave no answer within {DEADLINE_S:g} s")
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    selector.unregister(key.fileobj)
                texts[key.fileobj] += piece  # type: ignore[index]
                if len(texts[key.fileobj]) > MOST_BYTES:  # type: ignore[index]
                    raise Unavailable(f"{name} printed more than {MOST_BYTES // 2**20} MiB")
    try:
        process.wait(max(0.0, give_up_at - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{name} did not end within {DEADLINE_S:g} s") from None
    return texts[process.stdout], texts[process.stderr]


def _read(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise Unavailable(f"cannot read an answer of Slurm: {error}") from error


def _groups(starts: Sequence[Start]) -> list[list[Start]]:
    """Return starts that can be one array together, the others alone."""
    alike: dict[object, list[Start]] = defaultdict(list)
    for number, start in enumerate(starts):
        own = start.batch or -1 - number
        names = os.path.basename(start.engine_output), os.path.basename(start.argv[-1]), start.argv[:-1]
        alike[own, start.needs, start.priority, names].append(start)
    return [group[at : at + MOST_TASKS] for group in alike.values() for at in range(0, len(group), MOST_TASKS)]


def _is_type(node: Node, wanted: str) -> bool:
    """Tell whether a node may have GPUs of a type; a node whose GPUs have no names may have any."""
    return not node.gpu_type or wanted.lower() in node.gpu_type.lower() or fnmatch.fnmatch(node.gpu_type, wanted)


def _is_unreachable(error: str) -> bool:
    lowered = error.lower()
    return any(words in lowered for words in UNREACHABLE)
