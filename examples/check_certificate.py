"""Checks a certificate of `orrery prove`: that its events, and only these, are those of one contract in its ledgers.
Written from docs/trust.md alone ("Certificates" and "Format"). Shares no code with Orrery, and needs only Python 3.11.
Exits with 1 when the certificate is refused, and says why in one sentence.
"""

import argparse
import base64
import binascii
import hashlib
import json
import os
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

PUBLIC = "Public Global Stellar Network ; September 2015"
BASIC, SIGNED, EMPTY_TX_SET, SIGNED_MS, EMPTY_TX_SET_MS = range(5)  # the kinds of values in a header

class Refused(Exception):
    """Why the certificate, or the file with the validators, is not accepted."""

def require(condition, reason):
    if not condition:
        raise Refused(reason)

def sha256(data):
    return hashlib.sha256(data).digest()

def base64_text(data):
    return base64.b64encode(data).decode()

class Reader:
    """Reads from bytes, and refuses to read beyond their end."""

    def __init__(self, data, what):
        self.data, self.what, self.position = data, what, 0
    def take(self, size):
        start, self.position = self.position, self.position + size
        require(self.position <= len(self.data), f"{self.what} ends too early")
        return self.data[start:self.position]
    def number(self, signed=False):
        return int.from_bytes(self.take(4), "big", signed=signed)
    def one_of(self, *allowed):
        value = self.number()
        require(value in allowed, f"{self.what} has {value} where only {', '.join(map(str, allowed))} may be")
        return value
    def block(self, what, digest=None, read=None):
        block = Reader(self.take(self.number()), what)
        require(digest in (None, sha256(block.data)), f"{what} does not have the hash by which its ledger names it")
        value = read(block) if read else block.data
        require(not read or block.position == len(block.data), f"{what} is followed by other bytes in its block")
        return value
    def text(self, longest=0xFFFFFFFF):
        size = len(self.take(self.number()))
        require(size <= longest, f"{self.what} has a text of {size} bytes, where at most {longest} may be")
        require(not any(self.take(-size % 4)), f"{self.what} has a text that is not padded with zeros")
    def many(self, read, most=0xFFFFFFFF):
        count = self.number()
        require(count <= most, f"{self.what} has {count} parts where at most {most} may be")
        return [read(self) for _ in range(count)]

def zero(reader):
    reader.one_of(0)

def skip(reader, *fields):
    for field in fields:
        reader.take(field) if isinstance(field, int) else field(reader)

# Of the value: for the empty kinds the proposed hash; the time with the milliseconds, for the kinds that have them.
Header = namedtuple("Header", "hash previous kind set_hash close_time key signature results")

def read_header(reader, sequence):
    reader.take(4)  # version
    previous, set_hash, close_time, key, signature = reader.take(32), reader.take(32), reader.take(8), b"", b""
    reader.many(lambda r: r.text(128), 6)  # upgrades
    kind = reader.one_of(BASIC, SIGNED, EMPTY_TX_SET, SIGNED_MS, EMPTY_TX_SET_MS)
    close_time += reader.take(8) if kind in (SIGNED_MS, EMPTY_TX_SET_MS) else b""
    set_hash = reader.take(68)[:32] if kind in (EMPTY_TX_SET, EMPTY_TX_SET_MS) else set_hash
    if kind != BASIC:
        _, key, _, signature = zero(reader), reader.take(32), reader.one_of(64), reader.take(64)
    results, _, number, _ = reader.take(32), reader.take(32), reader.number(), reader.take(168)
    require(number == sequence, "the header is that of another ledger")
    skip(reader, *((4, zero) if reader.one_of(0, 1) == 1 else ()))
    return Header(sha256(reader.data), previous, kind, set_hash, close_time, key, signature, results)

def asset(reader):
    reader.take((0, 40, 48)[reader.one_of(0, 1, 2)])

def claims(reader):
    reader.many(lambda r: skip(r, (40, 44, 32)[r.one_of(0, 1, 2)], asset, 8, asset, 8))

def offer(reader):
    skip(reader, *((44, asset, asset, 20, zero) if reader.one_of(0, 1, 2) != 2 else ()))

PATH_PAYMENT, OFFER, INFLATION = (claims, 36, asset, 8), (claims, offer), (lambda r: r.many(lambda r: r.take(44)),)
SUCCESS = {2: PATH_PAYMENT, 13: PATH_PAYMENT, 3: OFFER, 4: OFFER, 12: OFFER, 8: (8,), 9: INFLATION, 14: (36,)}

def read_operation(reader):
    """The hash of the return value and the events if the operation is a successful invocation, otherwise none."""
    if reader.number() == 0:
        operation, code = reader.number(), reader.number(signed=True)
        if (operation, code) == (24, 0):
            return reader.take(32)
        if code == 0:
            skip(reader, *SUCCESS.get(operation, ()))
        elif operation in (2, 13) and code == -9:
            asset(reader)

def read_result(reader, fee_bump=False):
    """The hash of the return value and the events if the transaction is a successful invocation, otherwise none."""
    reader.take(8)  # fee
    code, operations = reader.number(signed=True), []
    if code in (0, -1):
        operations = reader.many(read_operation)
    elif code in (1, -13):
        require(not fee_bump, "there is a fee bump in a fee bump")
        reader.take(32)  # the hash of the inner transaction
        operations = [read_result(reader, fee_bump=True)]
    zero(reader)
    if code in (0, 1) and any(operations):
        require(len(operations) == 1, "an invocation is not the only operation of its transaction")
        return operations[0]

def address(reader):
    reader.take((36, 32, 40, 36, 32, 40)[reader.one_of(*range(6))])

def executable(reader):
    skip(reader, *((32,), (), (address, Reader.text))[reader.one_of(0, 1, 2)])

VALUES = {0: lambda r: r.one_of(0, 1), 1: 0, 2: 8, 3: 4, 4: 4, 5: 8, 6: 8, 7: 8, 8: 8, 9: 16, 10: 16, 11: 32, 12: 32,
          13: Reader.text, 14: Reader.text, 15: lambda r: r.text(32), 16: 0, 17: 0, 18: address, 19: executable, 20: 0,
          21: 8, 22: Reader.text}

def read_value(reader):
    """The bytes of an `ScVal`. Values inside of it follow one another, so it is enough to count those still to come."""
    start, rest = reader.position, 1
    while rest:
        kind = reader.one_of(*VALUES)
        skip(reader, VALUES[kind])
        rest -= 1
        if kind in (16, 17, 19) and reader.one_of(0, 1) == 1:
            rest += reader.number() * (1 if kind == 16 else 2)
    return reader.data[start:reader.position]

def read_event(reader):
    """The contract, the topics, the data, and the bytes of a `ContractEvent`."""
    start, _ = reader.position, zero(reader)
    contract = reader.take(32) if reader.one_of(0, 1) == 1 else None
    skip(reader, lambda r: r.one_of(0, 1, 2), zero)  # type
    topics, data = reader.many(read_value), read_value(reader)
    return contract, topics, data, reader.data[start:reader.position]

P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493  # of ed25519 (RFC 8032)
D = -121665 * pow(121666, -1, P) % P

def add(a, b):
    """The sum of two points in extended coordinates (X, Y, Z, T), where x = X/Z, y = Y/Z, and x*y = T/Z."""
    m, n = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    t, z = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = n - m, z - t, z + t, n + m
    return e * f % P, g * h % P, f * g % P, e * h % P

def point(data):
    """The point of which this is the canonical encoding, if there is one."""
    sign, y = divmod(int.from_bytes(data, "little"), 2**255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or x * x % P != square or (x == 0 and sign):
        return None
    x = P - x if x % 2 != sign else x
    return x, y, 1, x * y % P

BASE = point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))

def signature_valid(key, signature, message):
    a, s = point(key), int.from_bytes(signature[32:], "little")
    eight_times = a and add(*[add(*[add(a, a)] * 2)] * 2)
    if a is None or s >= ORDER or eight_times[0] % P == 0:  # a key of small order is nobody's
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    minus_a, r = (P - a[0], a[1], 1, P - a[3]), (0, 1, 1, 0)
    summands = (r, BASE, minus_a, add(BASE, minus_a))
    for bit in range(252, -1, -1):  # r = s * BASE - k * a
        r = add(add(r, r), summands[(s >> bit & 1) + 2 * (k >> bit & 1)])
    x, y = (coordinate * pow(r[2], -1, P) % P for coordinate in r[:2])
    return (y + x % 2 * 2**255).to_bytes(32, "little") == signature[:32]

def strkey(version, key):
    """The text of a key: of a validator (version 6, G…) or of a contract (version 2, C…)."""
    data = bytes([version << 3]) + key
    return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).decode()

def read_trust(path):
    """For each key, its organisation; and the threshold."""
    try:
        trust = tomllib.loads(Path(path).read_text("utf-8"))["trust"]
        table, keys = dict(trust["validators"]), {}
        for organisation, name in ((organisation, name) for organisation in table for name in table[organisation]):
            key = base64.b32decode(name)[1:33]
            require(len(key) == 32 and strkey(6, key) == name, f"{name!r} in {path} is not the key of a validator")
            require(keys.get(key, organisation) == organisation, f"{name} in {path} is of two organisations")
            keys[key] = organisation
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refused(f"the validators cannot be read from {path} ({error!r})") from None
    count = len(set(keys.values()))
    threshold = trust.get("threshold") or (2 * count + 2) // 3
    require(type(threshold) is int and 1 <= threshold <= count, f"the threshold in {path} is not from 1 to {count}")
    return keys, threshold

def read_invocations(reader, header):
    """The successful invocations of a ledger of the range: order and hash of the transaction, events."""
    results = reader.block("the result set", header.results, lambda r: r.many(lambda r: (r.take(32), read_result(r))))
    for order, (transaction, invocation) in enumerate(results, 1):
        if invocation:
            what = f"the block of events of transaction {transaction.hex()}"
            yield order, transaction, reader.block(what, invocation, lambda r: (read_value(r), r.many(read_event))[1])

def read_signature(reader, kind, header, previous, network, trust, signed):
    """Checks the signature of a ledger after the range. If it counts, adds who signed and returns the organisation."""
    if kind == 2:
        value = reader.block("the signed value")
        require(len(value) in (104, 112), f"the signed value has {len(value)} bytes, and not 104 or 112")
        close_time, key, signature = value[:-96], value[-96:-64], value[-64:]
    else:
        close_time, key, signature = header.close_time, header.key, header.signature
    organisation = trust[0].get(key)
    counts = (kind == 2 or header.kind in (SIGNED, SIGNED_MS)) and organisation not in signed | {None}
    require(counts == (kind != 0), f"the signature {'counts' if counts else 'does not count'}, but the kind is {kind}")
    transactions = reader.block("the transaction set") if counts else b""
    set_hash = sha256(transactions) if counts else header.set_hash
    require(kind == 2 or header.set_hash == set_hash, "the transaction set is not the one that was signed")
    require((kind != 2 and header.kind == BASIC) or
            signature_valid(key, signature, network + b"\0\0\0\4" + set_hash + close_time), "the signature is wrong")
    if counts:
        require(previous in (transactions[:32], transactions[4:36]), "the transaction set follows another ledger")
        signed.add(organisation)
        require((len(signed) == trust[1]) == (kind == 2), f"the kind is {kind}, and {len(signed)} have signed")
        return organisation

def check(data, trust, passphrase):
    """What the certificate proves: the rows of the summary, and the events."""
    reader, signed, attested, header, events, count = Reader(data, "the certificate"), set(), [], None, [], 0
    require(reader.take(8) == b"ORRCERT1", "it is not a certificate")
    network, contract, first, last = reader.take(32), reader.take(32), reader.number(), reader.number()
    require(network == sha256(os.fsencode(passphrase)), "it is a certificate of another network")
    require(first <= last, f"ledger {last}, the last of the range, is before ledger {first}, the first")
    ledger, digest = first - 1, hashlib.sha256(data[:80])
    try:
        while len(signed) < trust[1]:
            ledger += 1
            kind, before = reader.one_of(0, 1, 2) if ledger > last else 0, header
            if kind != 2:
                header = reader.block("the header", read=lambda r: read_header(r, ledger))
                require(not before or header.previous == before.hash, "the header does not follow the one before")
            if ledger > last:
                name = read_signature(reader, kind, header, before.hash, network, trust, signed)
                if name is not None:
                    attested.append(f"{name} ({ledger})")
                continue
            for order, transaction, found in read_invocations(reader, header):
                count += 1
                for index, (emitter, topics, value, xdr) in enumerate(found):
                    if emitter == contract:
                        digest.update(ledger.to_bytes(4, "big") + transaction + xdr)
                        number = f"{ledger << 32 | order << 12:019}-{index:010}"
                        events.append({"id": number, "ledger": ledger, "transaction_hash": transaction.hex(),
                                       "topics": [base64_text(topic) for topic in topics], "data": base64_text(value)})
    except Refused as error:
        raise Refused(f"ledger {ledger}: {error}") from None
    require(reader.take(32) == digest.digest(), "the digest is not that of the events")
    require(reader.position == len(data), "the certificate is followed by other bytes")
    summary = {"contract": strkey(2, contract), "network": passphrase, "ledgers": f"{first} to {last}",
               "events": len(events), "invocations": count, "attested by": ", ".join(attested)}
    return summary | {"digest": digest.hexdigest()}, events

def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("certificate")
    parser.add_argument("--validators", required=True, metavar="FILE", help="TOML with [trust.validators]")
    parser.add_argument("--passphrase", default=PUBLIC, help="of the network; without it the public one's")
    parser.add_argument("--events", action="store_true", help="print the events, and the summary to standard error")
    options = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        trust = read_trust(options.validators)
        summary, events = check(Path(options.certificate).read_bytes(), trust, options.passphrase)
        for event in events if options.events else ():
            print(json.dumps(event, separators=(",", ":")))
        for name, value in summary.items():
            print(f"{name:<12} {value}", file=sys.stderr if options.events else sys.stdout)
        sys.stdout.flush()
    except (Refused, OSError) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that a closed pipe is not complained of again
        sys.exit(f"refused: {error}")

if __name__ == "__main__":
    main()
