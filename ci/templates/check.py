"""Runs the shell parts of the templates as their engines would, against a scripted model server, and
checks that what is no schema's business holds: results, exit codes, signals, and a second start.

Usage: check.py OUTLAST, in the environment that ci/check-templates has prepared."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import crontab
import tree_sitter
import tree_sitter_groovy
import yaml

HERE = Path(__file__).resolve().parent
OUTLAST = Path(sys.argv[1]).resolve()
LIMIT = 120
SCRIPTS = HERE / "session-id"


def loaded(path):
    return yaml.safe_load((HERE / path).read_text())


def jenkins_script():
    """The one shell script of the Jenkinsfile that starts outlast, with Groovy's escapes undone."""
    text = (HERE / "jenkins/Jenkinsfile").read_text()
    (script,) = re.findall(r"script: '''(.*?)'''", text, re.DOTALL)
    return script.replace("\\\\", "\\")


def cron_command(scratch):
    """The command of the one entry, with cron's escape of % undone."""
    table = crontab.CronTab(tabfile=str(HERE / "cron/outlast.crontab"), user=False)
    (entry,) = list(table)
    assert entry.is_valid() and entry.user == "outlast", entry
    return located(entry.command.replace(r"\%", "%"), scratch)


def service_commands(scratch):
    """The shell script of ExecStart, with systemd's escapes undone."""
    text = (HERE / "systemd/outlast.service").read_text().replace("\\\n", "")
    (script,) = re.findall(r"^ExecStart=/bin/sh -c '(.*)'$", text, re.MULTILINE)
    return located(script.replace("$$", "$").replace("%%", "%"), scratch)


def located(command, scratch):
    """The paths of a real machine become those of a scratch folder."""
    for path, there in {
        "/usr/local/lib/outlast/session-id": SCRIPTS,
        "/etc/outlast/credentials.env": scratch / "credentials.env",
        "/srv/repository": scratch / "work",
        "/var/lib/outlast": scratch,
    }.items():
        command = command.replace(path, str(there))
    return command


def container_argv(manifest, scratch, session):
    """What the kubelet would start, with its variables expanded."""
    spec = loaded(manifest)["spec"]
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    (container,) = spec["template"]["spec"]["containers"]
    expand = lambda text: text.replace("$(SESSION)", session).replace("/outlast/", f"{scratch}/")
    return [expand(word) for word in container["command"]]


def github(scratch):
    steps = loaded("github/action.yml")["runs"]["steps"]
    return {step["id"]: step["run"] for step in steps if "run" in step}


def starts(scratch):
    """For each template: the command, variables of the engine, and the result file."""
    bash = lambda text: ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", text]
    session = "5e551019-0000-4000-8000-000000000001"
    prompt = {"PROMPT": "Say hello."}
    yield "github", bash(github(scratch)["run"]), {
        "PROMPT": "Say hello.", "PROMPT_FILE": "", "SETTINGS": '{"model":"opus"}',
        "FURTHER": "--allowed-tools 'Bash(cargo test:*)' --max-turns 5", "BUDGET": "5",
        "DURATION": "10m", "OUTLAST": "outlast", "FOLDER": f"{scratch}", "SESSION": session,
    }, "result.json"
    yield "gitlab", bash("\n".join(loaded("gitlab/outlast.gitlab-ci.yml")["outlast"]["script"])), {
        "CI_PIPELINE_ID": "7", "CI_JOB_NAME": "outlast", **prompt}, "work/result.json"
    yield "jenkins", ["sh", "-xe", "-c", jenkins_script()], {
        "BUILD_TAG": "jenkins-a-1", **prompt}, "work/result.json"
    steps = loaded("circleci/config.yml")["jobs"]["outlast"]["steps"]
    (run,) = [step["run"] for step in steps if isinstance(step, dict)
              and step.get("run", {}).get("name") == "outlast"]
    yield "circleci", bash(run["command"].replace("/tmp/", f"{scratch}/")), {
        "CIRCLE_PIPELINE_ID": "7", "CIRCLE_JOB": "outlast", **prompt}, "outlast-results/result.json"
    step = loaded("buildkite/pipeline.yml")["steps"][0]
    yield "buildkite", ["bash", "-e", "-c", step["command"].replace("$$", "$")], {
        "BUILDKITE_BUILD_ID": "7", "BUILDKITE_STEP_KEY": "outlast", **prompt}, "work/result.json"
    yield "systemd", ["/bin/sh", "-c", service_commands(scratch)], {}, "result.json"
    # All it knows of the service is in the file of credentials.
    yield "cron", ["/bin/sh", "-c", cron_command(scratch)], {
        "ANTHROPIC_API_KEY": None, "ANTHROPIC_BASE_URL": None}, "result.json"
    for name in ["job", "cronjob"]:
        argv = container_argv(f"kubernetes/{name}.yaml", scratch, session)
        yield f"kubernetes {name}", argv, {}, f"result-{session}.json"
    yield "slurm", ["bash", HERE / "slurm/array.sh"], {"SLURM_ARRAY_TASK_ID": "2"}, "work/results/2.json"
    if shutil.which("parallel"):
        yield "parallel", ["bash", HERE / "parallel/parallel.sh"], {}, "work/results/2.json"


class Server:
    """A scripted model server."""

    def __init__(self, scenario):
        command = [OUTLAST, "rehearse", scenario, "--serve"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.address = re.search(r"http://\S+", line).group(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def begin(command, variables, scratch, server):
    for folder in ["work", "bin", "home"]:
        (scratch / folder).mkdir(exist_ok=True)
    if not (scratch / "bin/outlast").exists():
        (scratch / "bin/outlast").symlink_to(OUTLAST)
    (scratch / "work/tasks.txt").write_text("Say hello.\nSay hello again.\n")
    service = {"ANTHROPIC_BASE_URL": server, "ANTHROPIC_API_KEY": "test-key-0123456789"}
    lines = [f"{name}={value}\n" for name, value in service.items()]
    (scratch / "credentials.env").write_text("".join(lines))
    environment = {
        "PATH": f"{scratch / 'bin'}:{os.environ['PATH']}", "HOME": str(scratch / "home"), **service,
        "OUTLAST_CONFIG_DIR": str(scratch / "sessions"), "XDG_RUNTIME_DIR": str(scratch),
        **variables,
    }
    environment = {name: value for name, value in environment.items() if value is not None}
    return subprocess.Popen(command, cwd=scratch / "work", env=environment, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE)


def run(name, command, variables, scratch, result, scenario, code):
    with Server(scenario) as server:
        process = begin(command, variables, scratch, server.address)
        _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == code, f"{name}: {process.returncode}, not {code}: {stderr}"
    found = json.loads((scratch / result).read_text())
    assert found["exit_code"] == (1 if name == "parallel" and code else code), f"{name}: {found}"
    assert found["is_error"] == (code != 0), f"{name}: {found}"
    return found


def check(name):
    """One template: it works, it repeats its result, and it passes on exit codes and signals."""
    def fresh():
        scratch = Path(tempfile.mkdtemp(prefix="outlast-template-"))
        kept = {each[0]: each[1:] for each in starts(scratch)}
        return scratch, *kept[name]

    folders = []
    try:
        scratch, command, variables, result = fresh()
        folders.append(scratch)
        hello = scratch / "hello.toml"
        head = 'name = "hello"\nsummary = "Two answers"\nprompt = "Say hello."\n'
        hello.write_text(head + '[[step]]\ntext = "Hello."\n' * 2)
        first = run(name, command, variables, scratch, result, hello, 0)
        again = run(name, command, variables, scratch, result, hello, 0)
        assert again["session_id"] == first["session_id"], f"{name}: another session"
        assert again["num_turns"] == first["num_turns"], f"{name}: the task was done twice"
        if name == "parallel":
            return
        scratch, command, variables, result = fresh()
        folders.append(scratch)
        run(name, command, variables, scratch, result, "quota", 75)
        scratch, command, variables, result = fresh()
        folders.append(scratch)
        with Server("hopeless") as server:
            process = begin(command, variables, scratch, server.address)
            # To the process that the engine has started: exec makes it outlast.
            for line in process.stderr:
                if "waiting" in line:
                    break
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=LIMIT)
        assert process.returncode == 143, f"{name}: {process.returncode} after SIGTERM"
        found = json.loads((scratch / result).read_text())
        assert found["exit_code"] == 143, f"{name}: {found}"
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def git(work, *words):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
    done = subprocess.run(command, cwd=work, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def keeping(name):
    """What the engine runs after outlast to keep the working tree, whatever the exit code."""
    if name == "github":
        return github(Path())["keep"]
    if name == "gitlab":
        return loaded("gitlab/outlast.gitlab-ci.yml")["outlast"]["after_script"][0]
    if name == "circleci":
        steps = [step["run"] for step in loaded("circleci/config.yml")["jobs"]["outlast"]["steps"]
                 if isinstance(step, dict) and "run" in step]
        (step,) = [step for step in steps if step["name"] == "keep the working tree"]
        assert step["when"] == "always", step
        return step["command"]
    return (HERE / "buildkite/pre-exit").read_text()


def check_working_tree(name, ignored=""):
    """A second start in a fresh checkout finds what the first one changed."""
    scratch = Path(tempfile.mkdtemp(prefix="outlast-template-"))
    try:
        kept = {each[0]: each[1:] for each in starts(scratch)}
        command, variables, result = kept[name]
        work = scratch / "work"
        work.mkdir()
        (work / "value").write_text("bad\n")
        (work / "tasks.txt").write_text("Say hello.\nSay hello again.\n")
        (work / ".gitignore").write_text(ignored)
        git(work, "init", "--quiet")
        git(work, "add", "--all")
        git(work, "commit", "--quiet", "-m", "Begin")
        commit = git(work, "rev-parse", "HEAD")
        variables = {**variables, "CI_COMMIT_SHA": commit, "CIRCLE_SHA1": commit,
                     "BUILDKITE_COMMIT": commit}
        if name == "github":
            variables["FURTHER"] = "--permission-mode acceptEdits"
        scenario = scratch / "edits.toml"
        tool = lambda name, input: f"[[step]]\ntool = [{{ name = '{name}', input = {input} }}]\n"
        head = 'name = "edits"\nsummary = "Two files"\nprompt = "Say hello."\n'
        scenario.write_text(
            head + tool("Read", '{ file_path = "value" }')
            + tool("Edit", '{ file_path = "value", old_string = "bad", new_string = "good" }')
            + tool("Write", '{ file_path = "new", content = "More." }')
            + '[[step]]\nstatus = 429\nheaders = { "retry-after" = "18000" }\n')
        run(name, command, variables, scratch, result, scenario, 75)
        after = begin(["bash", "-e", "-c", keeping(name)], variables, scratch, "")
        _, stderr = after.communicate(timeout=LIMIT)
        assert after.returncode == 0, f"{name}: {stderr}"
        git(work, "reset", "--quiet", "--hard", commit)
        git(work, "clean", "-ffdx", "--quiet")
        scenario.write_text(head + '[[step]]\ntext = "Hello."\n')
        run(name, command, variables, scratch, result, scenario, 0)
        found = [(work / file).read_text() for file in ["value", "new"]]
        assert found == ["good\n", "More."], f"{name}: {found}"
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def check_names():
    """A job without the variables of its engine is not started: it would have another one's session."""
    for name in ["gitlab", "jenkins", "circleci", "buildkite"]:
        scratch = Path(tempfile.mkdtemp(prefix="outlast-template-"))
        try:
            kept = {each[0]: each[1:] for each in starts(scratch)}
            command, variables, result = kept[name]
            for missing in variables.keys() - {"PROMPT"}:
                others = {key: value for key, value in variables.items() if key != missing}
                with Server("quota") as server:
                    process = begin(command, others, scratch, server.address)
                    _, stderr = process.communicate(timeout=LIMIT)
                assert process.returncode != 0 and missing in stderr, f"{name}: {stderr}"
                assert not (scratch / result).exists(), f"{name}: it was started"
        finally:
            shutil.rmtree(scratch)
    done = subprocess.run([SCRIPTS, ""], capture_output=True, text=True)
    assert done.returncode != 0 and not done.stdout, done


def check_github_outputs():
    """The other steps of the action: the id of the session, and what the job gets to know."""
    scratch = Path(tempfile.mkdtemp(prefix="outlast-template-"))
    try:
        steps, output = github(scratch), scratch / "output"
        (scratch / "result.json").write_text(
            json.dumps({"is_error": False, "exit_code": 0, "structured_output": {"a": [1]}}))
        environment = {
            "PATH": os.environ["PATH"], "GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(scratch),
            "GITHUB_STEP_SUMMARY": str(scratch / "summary"), "NAME": "7/task/task",
            "OUTLAST": str(OUTLAST), "OUTLAST_CONFIG_DIR": str(scratch / "sessions"),
            "FOLDER": str(scratch), "SESSION": "5e551019-0000-4000-8000-000000000001",
        }
        for name in ["session", "outcome"]:
            subprocess.run(["bash", "-e", "-o", "pipefail", "-c", steps[name]], env=environment,
                           check=True, capture_output=True, timeout=LIMIT)
        found = dict(line.split("=", 1) for line in output.read_text().splitlines())
        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}",
                            found["id"]), found
        assert (found["conclusion"], found["exit_code"]) == ("success", "0"), found
        assert found["structured_output"] == '{"a":[1]}', found
        assert not (scratch / "summary").exists(), "the run itself has reported"
        (scratch / "result.json").unlink()
        subprocess.run(["bash", "-e", "-o", "pipefail", "-c", steps["outcome"]], env=environment,
                       check=True, capture_output=True, timeout=LIMIT)
        assert output.read_text().count("conclusion=failure\nexit_code=1\n") == 1
        assert (scratch / "summary").exists(), "the run was killed"
    finally:
        shutil.rmtree(scratch)


def check_github_flags():
    """The action passes on the words of claude_args, or is not started."""
    # claude_args, the words
    table = [
        ("", []), ("\n", []), ("--max-turns 5 \\\n--x=y\n--z\n", ["--max-turns", "5", "--x=y", "--z"]),
        ("--p 'one\ntwo $HOME `id`' -q \"a b\"c\\ d ''", ["--p", "one\ntwo $HOME `id`", "-q", "a bc d", ""]),
        ("--p don't --disallowed-tools Bash", None), ('--disallowed-tools Bash "', None),
    ]
    for further, words in table:
        scratch = Path(tempfile.mkdtemp(prefix="outlast-template-"))
        try:
            program = scratch / "print"
            program.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
            program.chmod(0o755)
            environment = {
                "PATH": os.environ["PATH"], "OUTLAST": str(program), "FOLDER": str(scratch),
                "SESSION": "s", "PROMPT": "Say hello.", "FURTHER": further, "BUDGET": "5",
                "DURATION": "10m", "OUTLAST_CONFIG_DIR": str(scratch / "sessions"),
            }
            ended = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", github(scratch)["run"]], env=environment,
                cwd=scratch, capture_output=True, text=True, timeout=LIMIT)
            given = scratch / "execution.json"
            if words is None:
                assert ended.returncode == 2 and "claude_args" in ended.stderr, ended
                assert not given.exists(), f"{further!r}: it was started"
            else:
                found = given.read_text().split("\0")[:-1]
                first = found.index("--result-file") + 2
                assert ended.returncode == 0 and found[first:] == [
                    *words, "--no-stdin", "--", "Say hello."], f"{further!r}: {found}"
        finally:
            shutil.rmtree(scratch)


def check_jenkinsfile():
    """Groovy's grammar has no error in it, and finds one that is put in."""
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_groovy.language()))
    text = (HERE / "jenkins/Jenkinsfile").read_text()
    assert not parser.parse(text.encode()).root_node.has_error, "the Jenkinsfile has a mistake"
    broken = text.replace("if (code != 0) {", "if (code != 0 {")
    assert parser.parse(broken.encode()).root_node.has_error, "the parser finds no mistake"


def main():
    check_jenkinsfile()
    print("jenkins: parsed")
    check_github_outputs()
    print("github: outputs")
    check_github_flags()
    print("github: flags")
    check_names()
    print("names: needed")
    for name in ["github", "gitlab", "circleci", "buildkite"]:
        check_working_tree(name)
        print(f"{name}: keeps the working tree")
    for name in ["gitlab", "buildkite"]:
        check_working_tree(name, ".outlast-sessions/\nresult.json\n")
        print(f"{name}: keeps it where git ignores the result")
    names = [each[0] for each in starts(Path("/nowhere"))]
    if "parallel" not in names:
        print("WARNING: no GNU parallel: its recipe was not run", file=sys.stderr)
        assert os.environ.get("OUTLAST_TEST_TEMPLATES") != "required"
    for name in names:
        check(name)
        print(f"{name}: done, done again without work" +
              ("" if name == "parallel" else ", exit code 75, SIGTERM"))


main()
