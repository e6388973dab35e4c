"""Servers on the loopback: nginx, an S3 server, tinyproxy, one of ours that does as a test says, and certificates.

Each is a context manager, and ends with it. nginx is the system's or in .deps; moto is in .deps/s3.
"""

import base64
import collections
import contextlib
import grp
import hashlib
import hmac
import http.client
import http.server
import os
import pwd
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
import xml.etree.ElementTree as xml

import pytest
from conftest import ROOT

DEPS = ROOT / ".deps"
# In front of a command: what it mounts is its own.
PRIVATE = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
# A user without rights, and its group.
WORKER = "www-data" if any(each.pw_name == "www-data" for each in pwd.getpwall()) else "nobody"
WORKER = (WORKER, grp.getgrgid(pwd.getpwnam(WORKER).pw_gid).gr_name)
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:{DEPS}/nginx/usr/sbin")


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextlib.contextmanager
def daemon(command, port, log, folder=None, **env):
    """Runs a server, in a folder, until it listens on that port, and ends it at the end."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env={"PATH": os.environ["PATH"], **env}, stdin=subprocess.DEVNULL,
            stdout=out, stderr=out,
        )
    try:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()


class Nginx:
    """What nginx(...) gives: its URL, its folder of files, and what it was asked."""

    def __init__(self, folder, port):
        self.folder, self.port, self.url = folder, port, f"http://127.0.0.1:{port}"
        self.files = folder / "files"

    def requests(self):
        """(method, path, status) of each request."""
        lines = (self.folder / "access.log").read_text().splitlines()
        return [(method, path, int(status)) for method, path, status in map(str.split, lines)]


@contextlib.contextmanager
def nginx(folder, server, http="", disk=None):
    """nginx whose one server has these directives beside a root folder; `http` stands before it. `disk`: its
    files lie on a file system of that size.

    Where root runs the tests, workers of a server with PUT are WORKER, as on a real server. pytest's folders are
    closed to this user: so every path is relative. `folder`/files keeps its owner, if it is there already."""
    if NGINX is None:
        pytest.skip("no nginx here (tools/setup.sh puts it into .deps)")
    folder.mkdir(parents=True, exist_ok=True)
    user = () if os.geteuid() != 0 else WORKER if "PUT" in server else ("root",)
    if not (folder / "files").exists():
        (folder / "files").mkdir()
        if user:
            shutil.chown(folder / "files", *user)
    if user == WORKER:
        folder.chmod(0o755)
        server = server.replace(f"{folder.parent}/", "../")
    (folder / "access.log").touch()
    (port,) = free_ports(1)
    temporary = "".join(
        f"{kind}_temp_path {'files/t' if disk else 'temporary'}-{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"""daemon off; worker_processes 1; pid pid; error_log error.log;
{f"user {' '.join(user)};" if user else ""}
events {{ worker_connections 1024; }}
http {{
  log_format asked '$request_method $uri $status'; access_log access.log asked;
  client_max_body_size 64m; {temporary} {http}
  server {{ listen 127.0.0.1:{port}; root files; {server} }}
}}
"""
    )
    command = [NGINX, "-p", ".", "-e", "error.log", "-c", "nginx.conf"]
    if disk is not None:
        mount = f'mount -t tmpfs -o size={disk} none "{folder}/files" && exec "$@"'
        command = [*PRIVATE, "sh", "-c", mount, "sh", *command]
        if subprocess.run([*PRIVATE, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            pytest.skip("no mount namespace can be made here")
    with daemon(command, port, folder / "out", folder):
        yield Nginx(folder, port)


def directives(block):
    """What a file for nginx on a page says in its server, but where it listens and what it serves; and before it."""
    http, server = re.fullmatch(r"(.*)server \{\n(.*)\}\n", block, re.S).groups()
    return re.sub(r"^ *(listen|root) .*\n", "", server, flags=re.M), http


class S3:
    """What s3(...) gives: the URL of a bucket, and of STS, a key that it knows, and a role."""

    def __init__(self, url, key, secret, role):
        self.url, self.key, self.secret, self.role = url, key, secret, role
        self.sts = url.removesuffix("/bucket")


@contextlib.contextmanager
def s3(folder):
    """moto, which checks each signature; only who has the key may read and write."""
    if not (DEPS / "s3").is_dir():
        pytest.skip("no S3 server here (tools/test.sh --full puts moto into .deps/s3)")
    (port,) = free_ports(1)
    # moto wants a signature even where AWS wants a token of another's alone: for a web identity.
    main = f"""from moto.server import main; from moto.sts.responses import TokenResponse as Sts
check = Sts._authenticate_and_authorize_normal_action
Sts._authenticate_and_authorize_normal_action = lambda self, *more: "Web" in self._get_action() or check(self, *more)
main(['-H', '127.0.0.1', '-p', '{port}'])"""
    unchecked = {"PYTHONPATH": str(DEPS / "s3"), "INITIAL_NO_AUTH_ACTION_COUNT": "6"}
    with daemon([sys.executable, "-c", main], port, folder / "moto.log", **unchecked):

        def ask(service, path="/", method="POST", **fields):
            scope = f"Credential=x/20260101/us-east-1/{service}/aws4_request"
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}{path}", method=method,
                data=urllib.parse.urlencode(fields | {"Version": "2010-05-08"}).encode() if fields else None,
                headers={"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"},
            )
            with urllib.request.urlopen(request, timeout=20) as reply:
                return reply.read()

        allowed = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*","sts:AssumeRole"],"Resource":"*"}]}'
        ask("iam", Action="CreateUser", UserName="kiln")
        made = xml.fromstring(ask("iam", Action="CreateAccessKey", UserName="kiln"))
        ask("iam", Action="PutUserPolicy", UserName="kiln", PolicyName="p", PolicyDocument=allowed)
        trust = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}]}'
        ask("iam", Action="CreateRole", RoleName="kernels", AssumeRolePolicyDocument=trust)
        ask("iam", Action="PutRolePolicy", RoleName="kernels", PolicyName="p", PolicyDocument=allowed)
        ask("s3", "/bucket", "PUT")
        found = {each.tag.split("}")[1]: each.text for each in made.iter()}
        yield S3(f"http://127.0.0.1:{port}/bucket", found["AccessKeyId"], found["SecretAccessKey"],
                 "arn:aws:iam::123456789012:role/kernels")


Request = collections.namedtuple("Request", "method path headers body")


class Server(http.server.ThreadingHTTPServer):
    """Files in memory, by GET, HEAD and PUT. `answer(request)` may give a status, (status, headers), or
    (status, headers, body).

    `reading(path, bytes)` is called as the body of a PUT arrives, and says whether the rest is lost. With
    `keeps_parts` a body that is cut off is kept as it is, which no server should do. With `ranges` it knows the
    last bytes of a file."""

    daemon_threads = True

    def __init__(self, answer=None, tls=None, reading=None, keeps_parts=False, ranges=False):
        self.answer, self.reading, self.keeps_parts, self.ranges = answer, reading, keeps_parts, ranges
        self.files, self.asked, self.lock = {}, [], threading.Lock()
        super().__init__(("127.0.0.1", 0), Handler)
        self.tls = tls
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def finish_request(self, request, client_address):
        # The handshake is on the connection's own thread: a client that stalls holds up nobody else.
        request.settimeout(30)
        with contextlib.suppress(OSError):
            if self.tls:
                request = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                try:
                    request.do_handshake()
                except ssl.SSLError:
                    time.sleep(0.5)  # who hangs up at once may take the reason back
                    raise
            super().finish_request(request, client_address)

    def handle_error(self, request, client_address):
        pass

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def methods(self):
        with self.lock:
            return [each.method for each in self.asked]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        size, body = int(self.headers.get("Content-Length", 0)), b""
        with contextlib.suppress(OSError):
            while len(body) < size:
                some = self.rfile.read1(min(size - len(body), 512 if self.server.reading else 1 << 20))
                if not some:
                    break
                body += some
                if self.server.reading and self.server.reading(self.path, len(body)):
                    break
        return body, len(body) == size

    def do_it(self):
        server = self.server
        body, is_whole = self.body()
        if not is_whole and not server.keeps_parts:
            self.close_connection = True
            return
        request = Request(self.command, self.path, self.headers, body)
        with server.lock:
            server.asked.append(request)
        answer = server.answer(request) if server.answer else None
        status, headers, *found = answer if isinstance(answer, tuple) else (answer, {})
        found = found[0] if found else b""
        with server.lock:
            if status is None and self.command == "PUT":
                status = 204 if self.path in server.files else 201
                server.files[self.path] = body
            elif status is None:
                found = server.files.get(self.path)
                status, found = (404, b"") if found is None else (200, found)
                # As Azure, it knows no range of the last bytes.
                part = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
                if server.ranges and status == 200 and part and (begin := int(part[1])) >= len(found):
                    headers |= {"Content-Range": f"bytes */{len(found)}"}
                    status, found = 416, b""
                elif server.ranges and status == 200 and part:
                    headers |= {"Content-Range": f"bytes {begin}-{len(found) - 1}/{len(found)}"}
                    status, found = 206, found[begin:]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found)

    do_GET = do_HEAD = do_PUT = do_POST = do_it


def check_aws_signature(request, secret, region="us-east-1", service="s3"):
    """Whether the request has the signature that the service asks for: AWS's Signature Version 4, by its text."""
    kind, _, rest = request.headers["Authorization"].partition(" ")
    given = dict(part.strip().split("=", 1) for part in rest.split(","))
    names = given["SignedHeaders"].split(";")
    digest = hashlib.sha256(request.body).hexdigest()
    own = {"x-amz-content-sha256"} if service == "s3" else set()
    if kind != "AWS4-HMAC-SHA256" or not {"host", "x-amz-date"} | own <= set(names):
        return False
    if own and request.headers.get("x-amz-content-sha256") != digest:
        return False
    path, _, query = request.path.partition("?")
    canonical = "\n".join(
        [request.method, path, query]
        + [f"{name}:{' '.join((request.headers[name] or '').split())}" for name in names if name in request.headers]
        + ["", ";".join(names), digest]
    )
    date = request.headers["x-amz-date"]
    scope = f"{date[:8]}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in [*scope.split("/"), text]:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex() == given["Signature"] and given["Credential"].endswith(scope)


class Authority:
    """A certificate authority of one test, by the program openssl."""

    def __init__(self, folder):
        if shutil.which("openssl") is None:
            pytest.skip("no openssl program here")
        self.folder = folder
        folder.mkdir()
        (folder / "index").touch()
        (folder / "serial").write_text("01")
        (folder / "conf").write_text(
            f"""[ca]
default_ca = ours
[ours]
new_certs_dir = {folder}
database = {folder}/index
serial = {folder}/serial
default_md = sha256
policy = any
copy_extensions = copy
unique_subject = no
[any]
commonName = supplied
"""
        )
        self.file = folder / "ca.pem"
        self.run(
            "req", "-x509", *self.new_key("ca"), "-out", self.file, "-days", "2", "-subj", "/CN=tests",
            "-addext", "keyUsage=critical,keyCertSign",
        )

    def run(self, *arguments):
        done = subprocess.run(
            ["openssl", *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, timeout=30,
        )
        assert done.returncode == 0, done.stdout

    @staticmethod
    def new_key(name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", f"{name}.key"]

    def issue(self, name, host="IP:127.0.0.1", since=-1, until=1):
        """A certificate for that host, valid from and until so many days from now; the file has its key, too."""

        def day(offset):
            return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + offset * 86400))

        self.run("req", "-new", *self.new_key(name), "-out", f"{name}.csr", "-subj", f"/CN={name}",
                 "-addext", f"subjectAltName={host}")
        self.run("ca", "-batch", "-notext", "-config", "conf", "-cert", "ca.pem", "-keyfile", "ca.key",
                 "-in", f"{name}.csr", "-out", f"{name}.crt", "-startdate", day(since), "-enddate", day(until))
        file = self.folder / f"{name}.pem"
        file.write_text((self.folder / f"{name}.crt").read_text() + (self.folder / f"{name}.key").read_text())
        file.chmod(0o600)
        return file

    def server(self, name="server", clients=None, **how):
        """What a server of ours needs; it asks for a certificate that `clients` has issued, if that is given."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue(name, **how))
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients.file)
        return context


class Proxy(Server):
    """A forward proxy, also by CONNECT: `names` says which server of ours has which host and port.

    `asked` has what it was asked. With `user`, "name:password", it wants these."""

    def __init__(self, names, user=None):
        self.names = names
        self.user = user and "Basic " + base64.b64encode(user.encode()).decode()
        super().__init__(self.forward)
        self.RequestHandlerClass = ProxyHandler

    def forward(self, request):
        if self.user and request.headers["Proxy-Authorization"] != self.user:
            return 407, {"Proxy-Authenticate": "Basic realm=proxy"}, b""
        url = urllib.parse.urlsplit(request.path)
        if url.netloc not in self.names:
            return 502, {}, b"no such host"
        kept = {name: value for name, value in request.headers.items() if name not in ("Host", "Proxy-Authorization")}
        connection = http.client.HTTPConnection("127.0.0.1", self.names[url.netloc].server_port, timeout=20)
        with contextlib.closing(connection):
            connection.request(request.method, url.path, request.body, kept | {"Host": url.netloc})
            reply = connection.getresponse()
            return reply.status, {}, reply.read()


@contextlib.contextmanager
def tinyproxy(folder, user, password):
    """A forward proxy that is not ours, which wants this user and password: its URL, and its log."""
    program = shutil.which("tinyproxy")
    if program is None:
        pytest.skip("no tinyproxy here (tools/packages.txt has it)")
    folder.mkdir()
    (port,) = free_ports(1)
    (folder / "conf").write_text(
        f"Port {port}\nListen 127.0.0.1\nAllow 127.0.0.1\nBasicAuth {user} {password}\nLogLevel Connect\n"
    )
    log = folder / "log"
    with daemon([program, "-d", "-c", folder / "conf"], port, log):
        yield f"http://127.0.0.1:{port}", log


class ProxyHandler(Handler):
    def do_CONNECT(self):
        server = self.server
        with server.lock:
            server.asked.append(Request(self.command, self.path, self.headers, b""))
        if server.user and self.headers["Proxy-Authorization"] != server.user:
            self.send_response(407)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if self.path not in server.names:
            return self.send_error(502)
        there = socket.create_connection(("127.0.0.1", server.names[self.path].server_port), 20)
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        with there:
            ends = {self.connection: there, there: self.connection}
            while True:
                for each in select.select([*ends], [], [], 20)[0] or [None]:
                    some = each and each.recv(1 << 16)
                    if not some:
                        return None
                    ends[each].sendall(some)
