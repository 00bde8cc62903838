"""Every mistake ends in one sentence: what was written, what is allowed, and where; exit code 2."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.command_line import Run

LONG = "a" * 300
"""No file can have such a name."""
FILES = {
    "taken": "",
    "broken.yaml": "targets: [",
    "list.yaml": "- 1",
    "empty.yaml": "",
    "number.yaml": "7",
    "daemon.yaml": "targets: [{name: 'a/b', url: 'sim://mlp', slo: p95=30ms}]",
    "twice.yaml": "targets: [{name: a, url: 'sim://m', slo: p95=1s}, {name: a, url: 'sim://n', slo: p95=1s}]",
    "scheme.yaml": "targets: [{name: a, url: 'ftp://mlp', slo: p95=30ms}]",
    "field.yaml": "targets: [{name: a, url: 'sim://mlp', slo: p95=30ms, colour: red}]",
    "slo.yaml": "targets: [{name: a, url: 'sim://mlp', slo: soon}]",
    "mode.yaml": "targets: [{name: a, url: 'sim://mlp', slo: p95=1s, mode: dance}]",
    "window.yaml": "targets: [{name: a, url: 'sim://mlp', slo: p95=1s, window: 1ms}]",
    "knob.yaml": "targets: [{name: a, url: 'sim://mlp', slo: p95=1s, knobs: {max_batch_size: [a]}}]",
    "state.yaml": "state: 7\ntargets: [{name: a, url: 'sim://mlp', slo: p95=1s}]",
    "group.yaml": "targets: [{name: a, url: 'sim://mlp', slo: {p95: 1s}}]",
    "policy.yaml": "targets: [{name: a, url: 'sim://mlp', slo: p95=1s, policy: nowhere}]",
    "zone.yaml": "targets: [{name: a, url: 'sim://mlp', slo: p95=1s, time_zone: Mars/Base}]",
    "key.yaml": "targets: [{name: a, name: b, url: 'sim://mlp', slo: p95=1s}]",
    "address.yaml": "http: {listen: nohost}\ntargets: [{name: a, url: 'sim://mlp', slo: p95=1s}]",
    "none.yaml": "targets: []",
    "cyclic.yaml": "slo_ms: 9\nrate: 1\nstages: [{name: a, profile_ms: {1: 1}, next: [{stage: a}]}]",
    "scenario.yaml": "policy: nobody\nsessions: [{name: s, slo_ms: 40, rate: 3, alpha_ms: 1, beta_ms: 2}]",
    "long.yaml": f"sessions: [{{name: s, slo_ms: 40, arrival: 'trace:{LONG}', alpha_ms: 1, beta_ms: 2}}]",
    "right.yaml": "policy: eager\naccelerators: 1\n"
    "sessions: [{name: s, slo_ms: 40, rate: 3, alpha_ms: 1, beta_ms: 2}]",
    "front.yaml": "listen: {grpc: here}\nsessions: [{name: s, backends: ['triton://127.0.0.1:1/m']}]",
    "events.npz": "no log",
    "jobs.csv": "a,b",
    "cores.json": '{"kind": "triton", "cores": "many"}',
    "table.json": '{"kind": "triton", "table": {"0": 1}}',
    "old/policy.json": '{"version": 99}',
    "gpu.yaml": "targets: [{name: a, url: 'sim://mlp', slo: p95=1s, objective: speed}]",
    "server.json": "{}",
    "broken.json": "{",
    "deep.json": "[" * 200_000 + "]" * 200_000,
    "cluster.yaml": "previous: deep.json\nsessions: [{name: s, slo_ms: 9, rate: 3, alpha_ms: 1, beta_ms: 2}]",
    "parts.yaml": "previous: deep.json\npartitions: 1\nmodels: [{name: m, memory_mib: 1, rate: 1}]",
    "endless.json": '{"assignment": {"m": Infinity}, "backends": [{"name": "a", "duty_cycle_ms": 1, '
    '"sessions": [{"name": "s", "batch": 1e999, "rate": 1}]}]}',
    "epoch.yaml": "previous: endless.json\nsessions: [{name: s, slo_ms: 9, rate: 3, profile_ms: {1: 3}}]",
    "next.yaml": "previous: endless.json\npartitions: 1\nmodels: [{name: m, memory_mib: 1, rate: 1}]",
    "text.db": "no store",
    "nowhere.yaml": "targets: [{name: a, url: 'sim://m', slo: p95=1s}]\nstate: nowhere/x.db",
    "policy/policy.json": "{",
    "run/report.json": "[]",
    "results/triton-sweep.json": "{}",
}
"""The files that mistakes are about, by name."""
RUN = "run sim://mlp --slo p95=30ms --windows 1"
MISTAKES = f"""
nonsense                                              | No such command 'nonsense'
--nonsense                                            | No such option
run                                                   | TARGET: is missing
run sim://mlp                                         | --slo: is missing
run sim://mlp --slo                                   | '--slo' requires an argument
run sim://mlp --slo fast                              | 'fast' has no '='
run sim://mlp --slo p95=                              | '' is not a duration
run sim://mlp --slo p95=30                            | '30' is not a duration
run sim://mlp --slo p95=-3ms                          | negative
run sim://mlp --slo p95=0ms                           | --slo
run sim://mlp --slo p95=2h                            | --slo
run sim://mlp --slo p95=nanms                         | --slo
run sim://mlp --slo p77=3ms                           | mean, p50, p95, p99
run sim://mlp --slo =3ms                              | mean, p50, p95, p99
{RUN} --slo p95=20ms                                  | --slo: is given twice
{RUN} extra                                           | extra
{RUN} --objective speed                               | latency, strict, cpu, gpu
{RUN} --objective gpu                                 | no GPU can be seen
{RUN} --change-cost -1                                | --change-cost: '-1'
{RUN} --change-cost inf                               | --change-cost: inf is not a finite number
{RUN} --change-cost x                                 | --change-cost: 'x' must be a valid number
{RUN} --rate -5                                       | --rate: '-5'
{RUN} --rate nan                                      | --rate: 'nan' is not a number
{RUN} --rate 1e9                                      | --rate: '1e9'
{RUN} --rate 100 --arrival poisson:20                 | --arrival
{RUN} --arrival poisson                               | --arrival
{RUN} --arrival gauss:20                              | --arrival
{RUN} --shape image=3,x                               | --shape
{RUN} --shape x=1,2                                   | --shape: a simulated target has no inputs
{RUN} --shape image                                   | --shape
{RUN} --foreign-limit nan                             | --foreign-limit
{RUN} --foreign-limit -1                              | --foreign-limit: '-1'
{RUN} --sli-prometheus http://127.0.0.1:1             | --sli-query
{RUN} --sli-query up                                  | --sli-prometheus
{RUN} --sli-prometheus ftp://x --sli-query up         | --sli-prometheus
{RUN} --knob max_batch_size                           | --knob
{RUN} --knob max_batch_size=                          | --knob
{RUN} --knob max_batch_size=a,b                       | max_batch_size: 'a' is neither a number nor a
{RUN} --knob max_batch_size=nan                       | --knob max_batch_size
{RUN} --knob max_batch_size=0,4                       | knob max_batch_size
{RUN} --knob max_batch_size=1.5                       | knob max_batch_size
{RUN} --knob max_batch_size=4 --knob max_batch_size=8 | max_batch_size
{RUN} --knob max_queue_delay=0,2h                     | max_queue_delay: 7200 is not between 0 and 60
{RUN} --knob threads=1,2                              | knob threads
{RUN} --window 1ms                                    | --window
{RUN} --window 1h                                     | --window
{RUN} --window soon                                   | --window
{RUN} --windows 2                                     | --windows: is given twice
run sim://mlp --slo p95=1s --windows 1.5              | --windows: '1.5' must be a valid integer
run sim://mlp --slo p95=1s --windows 99999999999999999999 | --windows: '99999999999999999999'
daemon servetune.yaml --windows 1000001                | --windows: '1000001'
recommend sim://mlp --slo p95=1s --windows 1000001    | --windows: '1000001'
run sim://mlp --slo p95=1s --windows -1               | --windows: '-1'
run sim://mlp --slo p95=1s --windows many             | --windows: 'many' must be a valid integer
{RUN} --policy missing                                | policy missing
{RUN} --policy policy                                 | policy
{RUN} --policy taken                                  | taken
{RUN} --out taken                                     | --out
{RUN} --seed -1                                       | --seed: '-1'
{RUN} --seed 5000000000                               | --seed: '5000000000'
{RUN} --dry-run=yes                                   | --dry-run
run nowhere --slo p95=1s                              | nowhere
run '' --slo p95=1s                                   | sim
run mlp://x --slo p95=1s                              | sim
run sim:// --slo p95=1s                               | models loaded: mlp
run sim://resnet --slo p95=1s                         | models loaded: mlp
run 'sim://mlp?speed=3' --slo p95=1s                  | 'speed'
run 'sim://mlp?rate=-5' --slo p95=1s                  | rate
run 'sim://mlp?rate=nan' --slo p95=1s                 | rate
run 'sim://mlp?rate=x' --slo p95=1s                   | rate
run 'sim://mlp?cores=0' --slo p95=1s                  | cores
run 'sim://mlp?shape=0' --slo p95=1s                  | shape
run 'sim://mlp?seed=-1' --slo p95=1s                  | seed
run 'sim://mlp?rate=0:5,0:6' --slo p95=1s             | rate: the steps '0:5,0:6' do not begin at 0
run 'sim://mlp?rate=0:5,60:0' --slo p95=1s            | rate: '0:5,60:0' has a rate that is not positive
run 'sim://mlp?rate=1e12' --slo p95=1s                | more than 100,000
run 'sim://mlp?rate=1&rate=2' --slo p95=1s            | 'rate'
run 'sim://mlp?period=0' --slo p95=1s                 | 0 cores every 0 s
run sim://mlp/v2 --slo p95=1s                         | 'sim://mlp/v2' names more than a model
run sim://mlp#v2 --slo p95=1s                         | names more than a model
run sim://mlp:8001 --slo p95=1s                       | names more than a model
run 'sim://mlp?server=cores.json' --slo p95=1s        | cores: must be a valid number, but got 'many'
run 'sim://mlp?server=table.json' --slo p95=1s        | 0: 1 must map sizes
run 'triton://[::1/m' --slo p95=1s                    | [::1]
run 'triton://127.0.0.1:1/m?metrics=70000' --slo p95=1s | metrics=70000 is not between 1 and 65535
run 'triton://127.0.0.1:1/m?ca=/nowhere' --slo p95=1s | ca=/nowhere
{RUN} --policy old                                    | policy old
run 'sim://mlp?server=missing.json' --slo p95=1s      | missing.json
run 'sim://mlp?server=broken.json' --slo p95=1s       | broken.json
run 'triton://127.0.0.1:99999/m' --slo p95=1s         | 99999
run 'triton://127.0.0.1:1' --slo p95=1s               | triton://
observe                                               | TARGET: is missing
observe triton://127.0.0.1:1/mlp                      | 127.0.0.1:1
observe tfserving://127.0.0.1:1/mlp                   | 127.0.0.1:1
observe sim://mlp --every 0s                          | --every: 0s is not between
observe sim://mlp --every -1s                         | --every
observe sim://mlp --every soon                        | --every: 'soon' is not a duration
observe sim://mlp --count -1                          | --count: '-1'
observe sim://mlp --count 99999999999999999999        | --count: '99999999999999999999'
observe sim://mlp --slo p95=1s                        | No such option: --slo
recommend sim://mlp                                   | --slo: is missing
recommend sim://mlp --slo p95=1s --objective gpu      | no GPU can be seen
recommend sim://mlp --slo p95=1s --windows 0          | --windows: '0'
recommend sim://mlp --slo p95=1s --policy missing     | policy missing
recommend sim://mlp --slo p95=1s --windows 1 --json folder | folder
sweep sim://mlp --grid max_batch_size=1,4             | --rate
sweep sim://mlp --rate -5                             | --rate: '-5'
sweep sim://mlp --rate 9 --grid max_batch_size=4,x    | --grid max_batch_size
sweep sim://mlp --rate 9 --grid threads=1             | threads
sweep sim://mlp --rate 9 --grid max_batch_size        | --grid
sweep sim://mlp --rate 9 --seconds 0s                 | --seconds
sweep sim://mlp --rate 9 --repeats 0                  | --repeats: '0'
sweep sim://mlp --rate 9 --shape a=1 --shape a=2      | --shape a
sweep sim://mlp --rate 9 --out folder                 | folder
sweep sim://mlp --rate 9 --out taken/x.json           | taken
calibrate                                             | TARGET: is missing
calibrate sim://mlp --rate nan                        | --rate
calibrate sim://mlp --rate -1                         | --rate: '-1'
calibrate sim://mlp --seconds 1us                     | --seconds
calibrate sim://mlp --out folder                      | folder
calibrate sim://mlp --knob max_batch_size=x           | --knob max_batch_size
train                                                 | --out: is missing
train --out taken                                     | taken
train --out p --agent nobody                          | q_learning
train --out p --agent rrl:delta                       | PARAMETER=VALUE
train --out p --agent rrl:speed=1                     | caution
train --out p --agent rrl:delta=2                     | it is a parameter of rrl_paper
train --out p --agent rrl_paper:caution=2             | it is a parameter of rrl
train --out p --rate 1e6 --windows 2                  | at most 100,000 requests/s
compare --env tuner/TFServingCPU-v0 --objective gpu   | has no GPU
train --out p --agent rrl_paper:delta=-1              | got delta=-1
train --out p --agent rrl_paper:delta=inf             | inf is not finite
train --out p --agent rrl:caution=much                | caution: must be a valid number, but got 'much'
train --out p --agent rrl:caution=-1                  | --agent rrl: `caution >= 0` must hold
train --out p --agent rrl:levels.ratio=1.5            | --agent rrl: levels.ratio: the load levels are not
train --out p --agent 'capes:hidden=[]'               | --agent capes: hidden: must be 1 to 8 layers
train --out p --agent 'capes:hidden=[1000000]'        | 1 to 4096 units, but got [1000000]; those of capes are
train --out p --agent deeprm:episodes=1               | --agent deeprm: episodes: must be from 2 to 100,000
train --out p --agent capes:memory=0                  | --agent capes: memory: must be from 1 to
train --out p --agent capes:start=99999               | --agent capes: start: there is no configuration 99999
compare --agents 'rrl,capes:epsilon_last=2'           | --agents capes: epsilon_last: must be from 0 to
train --out p --env CartPole-v1                       | --env
train --out p --env tuner/Nowhere-v0                  | tuner/TritonCPU-v0
train --out p --env nowhere://x                       | 'nowhere://x' has no known scheme
train --out p --env sim://mlp --model inception       | --model: means nothing in sim://mlp
train --out p --env tuner/Cluster-v0 --slo p95=3ms    | --slo: means nothing
train --out p --scenario missing.yaml                 | --scenario
train --out p --server missing.json                   | missing.json
train --out p --server broken.json                    | broken.json
train --out p --server deep.json                      | server: deep.json is not JSON: it is nested too deeply
observe 'sim://mlp?server=deep.json' --count 1        | server: deep.json is not JSON: it is nested too deeply
observe 'sim://mlp?server=/dev/zero' --count 1        | server: cannot read /dev/zero: it is not a file
train --out p --model resnet                          | --model
train --out p --workload nothing                      | --workload
train --out p --workload step:low=x                   | --workload
train --out p --rate 1e9                              | --rate: '1e9'
train --out p --rate nan                              | --rate
train --out p --objective gpu                         | has no GPU
train --out p --windows 0                             | --windows: '0'
train --out p --windows 1000000000                    | --windows: '1000000000'
train --out p --seeds 0                               | --seeds: '0'
train --out p --policy missing                        | missing
train --out p --knob max_batch_size=a,b               | --knob max_batch_size
evaluate                                              | POLICY: is missing
evaluate missing                                      | policy missing
evaluate policy                                       | policy
evaluate taken                                        | taken
evaluate missing --seed -1                            | --seed: '-1'
compare --agents ,                                    | --agents
compare --agents rrl,nobody                           | q_learning
compare --agents rrl,rrl                              | given twice
compare --env tuner/Nowhere-v0                        | tuner/Cluster-v0
compare --env tuner/TritonCPU-v0 --window 1h          | --window
compare --objective gpu                               | has no GPU
compare --seeds 0                                     | --seeds: '0'
compare --windows 1 --seeds 1 --agents rrl --plot taken | --plot
compare --windows 1 --seeds 1 --agents rrl --json folder | folder
report                                                | RUN: is missing
report missing                                        | report.json
report run                                            | report.json
report taken                                          | RUN: taken is a file; give the run's folder
report run/report.json                                | run/report.json: not a
serve resnet                                          | mlp
serve --server nginx                                  | triton, tfserving
serve --server tfserving --no-quantiles               | --no-quantiles: means nothing with --server tfserving
demo --server nginx                                   | triton, tfserving
demo --simulated --rates 0 100                        | --rates
demo --simulated --rates 100                          | --rates
demo --simulated --rates nan 100                      | --rates
demo --simulated --windows 1                          | --windows: '1'
demo --simulated --model resnet                       | resnet
demo --simulated --slo p95                            | --slo
demo --simulated --objective gpu                      | no GPU
demo --simulated --out taken                          | --out
demo --simulated --server tfserving                   | --server: means nothing with --simulated; leave it
demo --dispatch --simulated                           | --simulated: means nothing with --dispatch; leave it
demo --dispatch --seed 1 --slo p95=30ms               | --slo: means nothing with --dispatch; leave it out
demo --dispatch --windows 14                          | --windows: means nothing with --dispatch; leave it
demo --dispatch --cold                                | --calibrate: means nothing with --dispatch; leave it
simulate                                              | FILE.yaml: is missing
simulate missing.yaml                                 | missing.yaml
simulate folder                                       | folder
simulate broken.yaml                                  | broken.yaml
simulate list.yaml                                    | list.yaml
simulate empty.yaml                                   | empty.yaml
simulate number.yaml                                  | number.yaml
simulate daemon.yaml                                  | daemon.yaml
simulate scenario.yaml                                | 'nobody'
simulate right.yaml --json folder                     | --json: folder is a folder; write the name of a file
simulate right.yaml --trace folder                    | --trace: folder is a folder; write the name of a file
simulate right.yaml --metrics taken/x                 | --metrics: cannot write to
goodput right.yaml --json folder                      | --json: folder is a folder; write the name of a file
simulate missing.yaml --seconds nan                   | --seconds: 'nan' is not a number
simulate missing.yaml --seconds 0                     | --seconds: '0'
goodput missing.yaml                                  | missing.yaml
goodput list.yaml                                     | list.yaml
goodput missing.yaml --limit 2                        | --limit: '2'
goodput missing.yaml --seed -1                        | --seed: '-1'
plan instances missing.yaml                           | missing.yaml
plan instances broken.yaml                            | broken.yaml
plan instances list.yaml                              | list.yaml
plan instances list.yaml --rule foo                   | error: --rule: 'foo' is not one of 'simulated'
plan cluster missing.yaml                             | missing.yaml
plan cluster empty.yaml                               | empty.yaml
plan cluster cluster.yaml                             | deep.json is no plan that `tuner plan
plan cluster epoch.yaml                               | endless.json is no plan that `tuner plan
plan partition                                        | FILE.yaml: is missing
plan partition list.yaml                              | list.yaml
plan partition broken.yaml                             | broken.yaml
plan partition parts.yaml                             | deep.json is no stored partition
plan partition next.yaml                              | endless.json is no stored partition
plan query missing.yaml                               | missing.yaml
plan query number.yaml                                | number.yaml
plan query cyclic.yaml                                | cyclic
plan prefix                                           | is missing
plan prefix one.onnx                                  | two or more
plan prefix jobs.csv missing.onnx                     | jobs.csv
plan replay jobs.csv --models scenario.yaml --accelerators 2    | models: is missing
plan replay jobs.csv --models scenario.yaml --accelerators 0    | --accelerators: '0'
plan nothing                                          | No such command 'nothing'
config check missing.yaml                             | missing.yaml
config check broken.yaml                              | broken.yaml
config check list.yaml                                | list.yaml
config check empty.yaml                               | empty.yaml line 1: is empty
config check daemon.yaml                              | 'a/b'
config check twice.yaml                               | 'a'
config check scheme.yaml                              | 'ftp://mlp'
config check field.yaml                               | colour
config check slo.yaml                                 | 'soon' has no '='
config check mode.yaml                                | 'dance'
config check window.yaml                              | window
config check knob.yaml                                | max_batch_size
config check gpu.yaml                                 | 'speed'
config check state.yaml                               | state: must be the name of a file or folder, but got 7
config check group.yaml                               | slo: must be text, but got a group of fields
config check policy.yaml                              | there is no folder nowhere
config check zone.yaml                                | 'Mars/Base'
config check key.yaml                                 | is given twice
config check address.yaml                             | 'nohost'
config check none.yaml                                | needs at least one target
config example extra                                  | extra
daemon missing.yaml                                   | missing.yaml
daemon nowhere.yaml                                   | nowhere.yaml line 2: state: there is no folder
daemon folder                                         | folder
daemon daemon.yaml                                    | 'a/b'
daemon mode.yaml --log loud                           | --log
daemon mode.yaml --windows -1                         | --windows: '-1'
history                                               | servetune.db
history --state text.db                               | --state: text.db is not a store of servetune
history --state folder                                | --state: folder is a folder
history --state .                                     | --state: . is a folder
history --state /dev/null                             | --state: /dev/null is a pipe or a device, not a file
history --state missing.db                            | state missing.db: there is no such file
history --state {LONG} | File name too long
history --count 0                                     | --count: '0'
explain one                                           | 'one' must be a valid integer
explain 1                                             | servetune.db
explain 1 --state text.db                             | --state: text.db is not a store
pause a                                               | servetune.db
pause a --state text.db                               | --state: text.db is not a store
pause                                                 | TARGET: is missing
resume a                                              | servetune.db
pin a --set x                                         | --set
pin a --set x=y                                       | --set
pin a --set =3                                        | --set: '=3' is not NAME=VALUE
pin a --set x=1,2                                     | --set: 'x=1,2' is not NAME=VALUE
pin a --set x=                                        | --set: 'x=' is not NAME=VALUE
pin a --set max_batch_size=4                          | servetune.db
unpin a                                               | servetune.db
rollback a --state folder                             | --state: folder is a folder
dispatch                                              | CONFIG.yaml: is missing
dispatch missing.yaml                                 | missing.yaml
dispatch list.yaml                                    | list.yaml
dispatch broken.yaml                                  | broken.yaml
dispatch front.yaml --check                           | 'here'
dispatch events.npz --replay                          | events.npz
dispatch events.npz --explain x                       | --explain: 'x'
dispatch events.npz --explain 3 --replay              | --replay: means nothing with --explain; leave it out
dispatch events.npz --replay --check                  | --check: means nothing with --replay; leave it out
dispatch front.yaml --check --log log.npz             | --log: means nothing with --check; leave it out
dispatch daemon.yaml                                  | daemon.yaml
workload show nothing                                 | nothing
workload show step:low=x                              | low
workload show step:low                                | step
workload show dynamic --rate nan                      | --rate
workload show dynamic --rate -5                       | --rate
workload show dynamic --windows 0                     | --windows: '0'
workload show dynamic --plot x.exe                    | .exe
workload show dynamic --json folder                   | folder
workload show dynamic --json {LONG} | --json: cannot write
simulate long.yaml                                    | there is no file
report {LONG} | File name too long
bench nothing                                         | nothing
bench engine --repeats 0                              | --repeats: '0'
experiment run nothing                                | triton-sweep
experiment run fig-9 --seeds 0                        | --seeds: '0'
experiment same missing missing                       | missing
experiment same {LONG} missing | File name too long
experiment same results {LONG} | File name too long
"""
"""A command line, and what its message must hold."""
ROWS = [tuple(part.strip() for part in line.split(" | ")) for line in MISTAKES.strip().splitlines()]


@pytest.fixture
def files(tmp_path: Path) -> None:
    """What lies in the folder in which the commands run."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "folder").mkdir()


def test_the_table_is_long_enough() -> None:
    """And no row is there twice."""
    assert len({line for line, _ in ROWS}) == len(ROWS) >= 150


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("line", "holds"), ROWS, ids=[line.replace(LONG, "LONG") for line, _ in ROWS])
def test_a_mistake_is_one_sentence(run: Run, line: str, holds: str) -> None:
    """Exit code 2, one line that begins with `error:`, no traceback, and no repr of Python."""
    ended = run(*shlex.split(line))

    assert ended.code == 2, ended
    first, *further = ended.err.splitlines()
    assert first.startswith("error: "), ended
    assert all(one.startswith("  ") for one in further), ended  # one line for each mistake of a file
    assert holds in ended.err
    assert "<class" not in ended.err
    assert "np.float64" not in ended.err


def test_a_mistake_is_not_told_while_a_shell_completes_the_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message would stand in the middle of what is being written."""
    words = "tuner run --slo p95=3ms --slo p95=2ms --ra"
    for name, value in (("_TUNER_COMPLETE", "complete_bash"), ("COMP_WORDS", words), ("COMP_CWORD", "6")):
        monkeypatch.setenv(name, value)

    ended = run()

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.split() == ["--rate"]
