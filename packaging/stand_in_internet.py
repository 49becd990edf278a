#!/usr/bin/env python3
"""The part of the internet that the documents name, for packaging/test-documents:

    packaging/stand_in_internet.py RELEASED LAKE CERTIFICATE KEY

Serves, on loopback addresses of the network namespace in which it is started:

    http://127.0.0.1:8000/          the files of the directory RELEASED, as the place where they are published
    https://SERVICE/ on port 443    by the name that the client asks for (HOSTS): JSON-RPC and services, passed on to
                                    those that run here, and the ledger lake LAKE as a bucket of AWS

CERTIFICATE and KEY are for the names of HOSTS, which /etc/hosts of the walked system has to lead here."""

import functools
import http.client
import http.server
import pathlib
import ssl
import sys
import threading
import urllib.parse
from xml.sax.saxutils import escape

# Address of the service that follows the stand-in of the network.
FOLLOWER = "127.0.0.2:8485"
# What answers for a name: (address, path before that of the request), or the bucket.
BUCKET = "bucket"
HOSTS = {
    "soroban-testnet.stellar.org": (FOLLOWER, "/rpc"),
    "aws-public-blockchain.s3.us-east-2.amazonaws.com": BUCKET,
    # A service behind a proxy with TLS.
    "orrery.example.org": ("127.0.0.1:8484", ""),
    # Another machine, on port 8484 without TLS: a service on a loopback address does not answer to this name.
    "first.example.org": (FOLLOWER, ""),
}
# Addresses of names that are not at 127.0.0.1.
MACHINES = {"first.example.org": "127.0.0.2"}
# Prefix of the network's lake in the bucket.
PREFIX = "v1.1/stellar/ledgers/testnet/"
LISTED_AT_ONCE = 1000


class Internet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lake = pathlib.Path()

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/octet-stream", encoding=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        place = HOSTS.get((self.headers.get("Host") or "").split(":")[0])
        if place == BUCKET:
            return self.bucket()
        if place is None:
            return self.answer(404, b"no such host")
        address, path = place
        passed = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        # As a proxy does: others than this machine ask.
        passed["X-Forwarded-For"] = "192.0.2.7"
        try:
            connection = http.client.HTTPConnection(address, timeout=60)
            connection.request(self.command, (path + self.path) if path == "" else path, body, passed)
            got = connection.getresponse()
            kind, encoding = got.getheader("Content-Type", "text/plain"), got.getheader("Content-Encoding")
            return self.answer(got.status, got.read(), kind, encoding)
        except OSError as error:
            return self.answer(502, str(error).encode())

    do_GET = do_POST = do_HEAD = handle_request

    def bucket(self):
        target = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(target.query, keep_blank_values=True))
        if query.get("list-type") == "2":
            return self.answer(200, self.listing(query).encode(), "application/xml")
        key = urllib.parse.unquote(target.path).lstrip("/")
        file = self.lake / key.removeprefix(PREFIX)
        if not key.startswith(PREFIX) or not file.is_file():
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>", "application/xml")
        return self.answer(200, file.read_bytes())

    def listing(self, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        keys = sorted(PREFIX + str(file.relative_to(self.lake)) for file in self.lake.rglob("*") if file.is_file())
        listed, common = [], []
        for key in keys:
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            name = key if end < 0 else key[:end + 1]
            known = listed if end < 0 else common
            if key.startswith(prefix) and name > after and name not in known[-1:]:
                known.append(name)
        names = sorted(listed + common)[:int(query.get("max-keys", LISTED_AT_ONCE))]
        is_cut = len(names) < len(listed) + len(common)
        parts = [f"<IsTruncated>{str(is_cut).lower()}</IsTruncated><KeyCount>{len(names)}</KeyCount>"]
        if is_cut:
            parts.append(f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>")
        for name in names:
            if name in common:
                parts.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            else:
                size = (self.lake / name.removeprefix(PREFIX)).stat().st_size
                parts.append(f"<Contents><Key>{escape(name)}</Key><Size>{size}</Size></Contents>")
        return f"<ListBucketResult>{''.join(parts)}</ListBucketResult>"


def main():
    released, lake, certificate, key = sys.argv[1:]
    Internet.lake = pathlib.Path(lake)
    quiet = type("Released", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    place = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), functools.partial(quiet, directory=released))
    threading.Thread(target=place.serve_forever, daemon=True).start()
    other = http.server.ThreadingHTTPServer(("127.0.0.2", 8484), Internet)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 443), Internet)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # Without a handshake in the thread that accepts: a client that sends nothing must not stop the others.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


if __name__ == "__main__":
    main()
