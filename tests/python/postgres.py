"""A Postgres server for tests: in a temporary folder, on a Unix socket, without a network."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# Debian keeps the server's programs off the PATH.
FOLDERS = [*sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True), *os.get_exec_path()]
# Postgres refuses to run as root.
USERS = ("postgres", "nobody")


def programs() -> Path | None:
    """Returns the folder with the programs of Postgres."""
    needed = ("initdb", "postgres", "psql")
    found = (Path(folder) for folder in FOLDERS)
    return next((f for f in found if all((f / name).exists() for name in needed)), None)


class Server:
    """A server with the database `shop` of the superuser `ann`; `bob` needs a password."""

    PATIENCE = 60

    def __init__(self, folder_of_programs: Path) -> None:
        self.programs = folder_of_programs
        self.folder = Path(tempfile.mkdtemp(prefix="hw-pg-"))
        self.owner: dict[str, object] = {}
        if os.geteuid() == 0:
            names = {user.pw_name: user for user in pwd.getpwall()}
            user = next(names[name] for name in USERS if name in names)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.owner = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.process: subprocess.Popen | None = None
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def address(self, user: str = "ann", database: str = "shop") -> str:
        """Returns the address of a database."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def start(self) -> None:
        """Makes a cluster, starts the server and waits for it."""
        data = self.folder / "data"
        options = ["-U", "ann", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        self.run("initdb", "-D", data, *options, **self.owner)
        (data / "pg_hba.conf").write_text("local all bob scram-sha-256\nlocal all all trust\n")
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "fsync=off"]
        # Ends the server also when the tests are killed; it passes the signal of `stop` on.
        limit = ["timeout", "-s", "INT", "900"] if shutil.which("timeout") else []
        command = [*limit, self.programs / "postgres", "-D", data]
        command += [part for setting in settings for part in ("-c", setting)]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd="/", stdout=log, stderr=subprocess.STDOUT, **self.owner
            )
        end = time.monotonic() + self.PATIENCE
        while True:
            try:
                self.execute("CREATE DATABASE shop", "postgres")
                return
            except subprocess.CalledProcessError as error:
                if time.monotonic() > end or self.process.poll() is not None:
                    log = (self.folder / "log").read_text()
                    raise RuntimeError(f"Postgres did not start: {error.stderr}\n{log}") from error
                time.sleep(0.1)

    def run(self, program: str, *arguments: object, **options: object) -> str:
        """Runs a program of Postgres and returns its output."""
        command = [self.programs / program, *map(str, arguments)]
        done = subprocess.run(
            command, cwd="/", check=True, capture_output=True, text=True, timeout=120, **options
        )
        return done.stdout

    def execute(self, statements: str, database: str = "shop") -> str:
        """Runs SQL with psql."""
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        return self.run("psql", *options, "-d", self.address(database=database), "-c", statements)

    def stop(self) -> None:
        """Ends the server, at most some seconds later, and removes its folder."""
        if self.process is not None:
            # A fast shutdown: it ends the sessions.
            self.process.send_signal(2)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
