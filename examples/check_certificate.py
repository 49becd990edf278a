#!/usr/bin/env python3
"""Checks a certificate of `orrery prove`: that these, and only these, are the events which invocations
of a contract emitted in a range of ledgers. Written from docs/trust.md alone; shares no code with Orrery,
and needs nothing but Python 3.11. Exits with 1 when the certificate is refused."""

import argparse, base64, hashlib, json, sys, tomllib
PUBLIC = "Public Global Stellar Network ; September 2015"

class Refused(Exception):
    """Why a certificate proves nothing."""

def need(holds, reason):
    if not holds:
        raise Refused(reason)

def sha256(data):
    return hashlib.sha256(data).digest()

# ed25519 (RFC 8032)
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P

def point(encoded):
    """Returns the point of 32 bytes in extended coordinates, or None."""
    sign, y = divmod(int.from_bytes(encoded, "little"), 2**255)
    if y >= P:
        return None
    u, v = (y * y - 1) % P, (D * y * y + 1) % P
    x = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    x = x if v * x * x % P == u else x * pow(2, (P - 1) // 4, P) % P
    if v * x * x % P != u or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P

def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)

def multiply(scalar, p):
    result = (0, 1, 1, 0)
    while scalar:
        result, p, scalar = add(result, p) if scalar & 1 else result, add(p, p), scalar >> 1
    return result

BASE = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))

def is_signed(key, message, signature):
    a, s = point(key), int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or a is None or s >= ORDER or multiply(8, a)[0] == 0:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    x, y, z, _ = add(multiply(s, BASE), multiply(k, (P - a[0], a[1], 1, P - a[3])))
    x, y = x * pow(z, -1, P) % P, y * pow(z, -1, P) % P
    return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]

def strkey(version, key):
    crc = 0
    for bit in "".join(f"{byte:08b}" for byte in bytes([version]) + key):
        crc = (crc << 1 ^ 0x1021 * (crc >> 15 ^ int(bit))) & 0xFFFF
    return base64.b32encode(bytes([version]) + key + crc.to_bytes(2, "little")).decode()

def validator_key(text):
    need(strkey(6 << 3, key := base64.b32decode(text)[1:33]) == text, f"{text} is not a validator's key")
    return key

class Reader:
    """Reads XDR (RFC 4506)."""
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        need(self.at + count <= len(self.data), "it ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def u32(self):
        return int.from_bytes(self.take(4), "big")

    def one_of(self, *values):
        value = int.from_bytes(self.take(4), "big", signed=True)
        need(value in values, f"a value {value} that is not known")
        return value

    def opaque(self, most=2**32):
        length = self.u32()
        data, padding = self.take(length), self.take(-length % 4)
        need(length <= most and not any(padding), "a text is too long, or padding is not zero")
        return data

    def block(self):
        return self.take(self.u32())

    def end(self):
        need(self.at == len(self.data), "bytes are left over")

class Header:
    """The fields of a LedgerHeader that a certificate needs; `time` as it is signed."""
    def __init__(self, data):
        r = Reader(data)
        r.take(4)
        self.previous, self.set, self.time = r.take(32), r.take(32), r.take(8)
        for _ in range(r.one_of(*range(7))):
            r.opaque(128)
        self.kind = r.one_of(0, 1, 2, 3, 4)
        if self.kind in (3, 4):
            self.time += r.take(8)
        self.proposed, self.node, self.signature = self.set, None, None
        if self.kind in (2, 4):
            self.proposed = r.take(32 + 36)[:32]
        if self.kind != 0:
            r.one_of(0)
            self.node, self.signature = r.take(32), r.opaque(64)
        self.results = r.take(32 + 32)[:32]
        self.sequence = r.u32()
        r.take(8 + 8 + 4 + 8 + 4 + 4 + 4 + 4 * 32)
        need(not r.one_of(0, 1) or not any(r.take(8)[4:]), "its header has an extension")
        r.end()

def asset(r):
    r.take((0, 40, 48)[r.one_of(0, 1, 2)])

def skip(r, *parts):
    for part in parts:
        part(r) if part is asset else r.take(part)

def claims(r):
    for _ in range(r.u32()):
        skip(r, (32 + 8, 36 + 8, 32)[r.one_of(0, 1, 2)], asset, 8, asset, 8)

def operation_result(r):
    """Returns the hash of a successful invocation; None for other results."""
    if r.one_of(*range(-6, 1)) != 0:
        return None
    kind, code = r.one_of(*range(27)), r.one_of(*range(-20, 1))
    if kind in (2, 13) and code == 0:
        claims(r)
        skip(r, 36, asset, 8)
    elif kind in (2, 13) and code == -9:
        asset(r)
    elif kind in (3, 4, 12) and code == 0:
        claims(r)
        if r.one_of(0, 1, 2) != 2:
            skip(r, 36 + 8, asset, asset, 8 + 8 + 4)
            r.one_of(0)
    elif code == 0:
        data = r.take(r.u32() * (36 + 8) if kind == 9 else {8: 8, 14: 36, 24: 32}.get(kind, 0))
        return data if kind == 24 else None

def transaction_result(r):
    """Returns the hash of the invocation of a successful transaction; None for other transactions."""
    r.take(8)
    code = r.one_of(*range(-18, 2))
    if is_fee_bump := code in (1, -13):
        r.take(32 + 8)
        inner = r.one_of(*range(-18, 1))
        need((code == 1) == (inner == 0), "a fee bump and its transaction have different results")
        code = inner
    hashes = [operation_result(r) for _ in range(r.u32())] if code in (0, -1) else []
    need(not any(r.take(4 + 4 * is_fee_bump)), "a result has an extension")
    if code != 0 or not any(hashes):
        return None
    need(len(hashes) == 1, "a transaction invokes a contract beside other operations")
    return hashes[0]

# Sizes of those kinds of ScVal that always have the same.
SIZES = {0: 4, 2: 8, 3: 4, 4: 4, 5: 8, 6: 8, 7: 8, 8: 8, 9: 16, 10: 16, 11: 32, 12: 32, 21: 8}

def value(r):
    """Reads an ScVal: the values inside of one follow it. Returns its bytes."""
    start, left = r.at, 1
    while left:
        left -= 1
        kind = r.one_of(*range(23))
        executable = r.one_of(0, 1, 2) if kind == 19 else None
        if kind == 18 or executable == 2:
            r.take((36, 32, 40, 36, 32, 40)[r.one_of(0, 1, 2, 3, 4, 5)])
        if kind in (13, 14, 15, 22) or executable == 2:
            r.opaque(32 if kind == 15 else 2**32)
        r.take(32 if executable == 0 else SIZES.get(kind, 0))
        if kind in (16, 17, 19) and r.one_of(0, 1):
            left += r.u32() * (1 if kind == 16 else 2)
    return r.data[start : r.at]

def events_of(pre_image, contract):
    """Yields number, bytes, topics and data of the events of one contract."""
    r = Reader(pre_image)
    value(r)
    for number in range(r.u32()):
        start = r.at
        r.one_of(0)
        emitter = r.take(32) if r.one_of(0, 1) else None
        _ = r.one_of(0, 1, 2), r.one_of(0)
        topics, data = [value(r) for _ in range(r.u32())], value(r)
        if emitter == contract:
            yield number, pre_image[start : r.at], topics, data
    r.end()

class Checker:
    def __init__(self, data, passphrase, organisations, threshold):
        self.r, self.network, self.threshold = Reader(data), sha256(passphrase.encode()), threshold
        self.organisation = {validator_key(k): name for name, keys in organisations.items() for k in keys}
        self.previous, self.events, self.invocations, self.signed, self.ledger = None, [], 0, {}, None

    def check(self):
        need(self.r.take(8) == b"ORRCERT1", "this is not a certificate")
        need(self.r.take(32) == self.network, "it is of another network")
        self.contract, self.first, self.last = self.r.take(32), self.r.u32(), self.r.u32()
        need(self.first <= self.last, "its range is empty")
        for self.ledger in range(self.first, self.last + 1):
            self.ledger_of_range()
        self.ledger += 1
        while not self.ledger_of_tail():
            self.ledger += 1
        statement = self.r.data[: 8 + 32 + 32 + 8]
        statement += b"".join(e[0].to_bytes(4, "big") + e[1] + e[3] for e in self.events)
        self.digest = sha256(statement)
        need(self.r.take(32) == self.digest, "its events are not those that it names at its end")
        self.r.end()

    def header(self):
        data = self.r.block()
        header = Header(data)
        need(header.sequence == self.ledger and self.previous in (None, header.previous),
             "its header does not follow the ledger before")
        self.previous = sha256(data)
        return header

    def ledger_of_range(self):
        header, results = self.header(), self.r.block()
        need(sha256(results) == header.results, "its results are not those in its header")
        r = Reader(results)
        for order in range(1, r.u32() + 1):
            transaction, named = r.take(32), transaction_result(r)
            if named is None:
                continue
            pre_image = self.r.block()
            need(sha256(pre_image) == named,
                 f"events and value of {transaction.hex()} are not those in its result")
            self.invocations += 1
            for number, event, topics, data in events_of(pre_image, self.contract):
                event_id = f"{self.ledger << 32 | order << 12:019}-{number:010}"
                self.events.append((self.ledger, transaction, event_id, event, topics, data))
        r.end()

    def ledger_of_tail(self):
        kind, previous = self.r.one_of(0, 1, 2), self.previous
        if kind == 2:
            signed = self.r.block()
            need(len(signed) in (104, 112), "its signed value has another size")
            time, node, signature, named = signed[:-96], signed[-96:-64], signed[-64:], None
            counts = self.count(node)
        else:
            header = self.header()
            time, node, signature, named = header.time, header.node, header.signature, header.proposed
            counts = header.kind in (1, 3) and self.count(node)
        need(counts == (kind > 0), "its signature counts, or does not, against what the certificate says")
        need((len(self.signed) == self.threshold) == (kind == 2), "enough have signed with another ledger")
        if kind > 0:
            image = self.r.block()
            need(previous in (image[:32], image[4:36]) and named in (None, sha256(image)),
                 "its transaction set is not the one in its header, or follows another ledger")
            named = sha256(image)
        need(not node or is_signed(node, self.network + b"\0\0\0\4" + named + time, signature),
             f"the signature of {strkey(6 << 3, node)} is not valid")
        return kind == 2

    def count(self, node):
        name = self.organisation.get(node)
        return name is not None and self.signed.setdefault(name, self.ledger) == self.ledger

def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("certificate")
    parser.add_argument("--validators", required=True, help="TOML file with the settings [trust]")
    parser.add_argument("--passphrase", default=PUBLIC, help="passphrase of the network")
    parser.add_argument("--events", action="store_true", help="print the events, a JSON object a line")
    given = parser.parse_args()
    with open(given.validators, "rb") as file, open(given.certificate, "rb") as certificate:
        trust = tomllib.load(file)["trust"]
        checker = Checker(certificate.read(), given.passphrase, trust["validators"], trust["threshold"])
    try:
        checker.check()
    except Refused as reason:
        where = f"ledger {checker.ledger} of the certificate proves nothing: " if checker.ledger else ""
        sys.exit(f"refused: {where}{reason}")
    b64 = lambda data: base64.b64encode(data).decode()
    for ledger, transaction, event_id, _, topics, data in checker.events if given.events else []:
        print(json.dumps({"id": event_id, "ledger": ledger, "transaction_hash": transaction.hex(),
              "topics": [b64(topic) for topic in topics], "data": b64(data)}, separators=(",", ":")))
    signed = ", ".join(f"{name} ({ledger})" for name, ledger in checker.signed.items())
    print(f"contract     {strkey(2 << 3, checker.contract)}", f"network      {given.passphrase}",
          f"ledgers      {checker.first} to {checker.last}", f"events       {len(checker.events)}",
          f"invocations  {checker.invocations}", f"attested by  {signed}",
          f"digest       {checker.digest.hex()}", sep="\n", file=sys.stderr if given.events else sys.stdout)

if __name__ == "__main__":
    main()
