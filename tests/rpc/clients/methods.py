# Calls every method that reads history with the official client, follows each list to its end, and prints the results as
# the client parsed them, in the same JSON format for all clients.
# Arguments: URL of the RPC server, first ledger. Needs the package stellar-sdk.
import json
import sys

from stellar_sdk import SorobanServer
from stellar_sdk.exceptions import SorobanRpcErrorResponse

url, first = sys.argv[1], int(sys.argv[2])
server = SorobanServer(url)


def walk(method, items, limit):
    page = method(start_ledger=first, limit=limit)
    while getattr(page, items):
        yield from getattr(page, items)
        page = method(cursor=page.cursor, limit=limit)


def walk_ledgers():
    page = server.get_ledgers(start_ledger=first, limit=5)
    yield from page.ledgers
    # The server rejects a cursor at the newest ledger.
    while page.ledgers[-1].sequence < page.latest_ledger:
        page = server.get_ledgers(cursor=page.cursor, limit=5)
        yield from page.ledgers


def transaction(it, hash):
    return [hash, kind(it.status), it.ledger, it.application_order,
            it.fee_bump, it.envelope_xdr, it.result_xdr, it.result_meta_xdr]


def kind(value):
    return value.value if hasattr(value, "value") else value


def health():
    try:
        return server.get_health().status
    except SorobanRpcErrorResponse as error:
        return error.message


transactions = [transaction(it, it.transaction_hash) for it in walk(server.get_transactions, "transactions", 200)]
latest, fees = server.get_latest_ledger(), server.get_fee_stats()
print(json.dumps({
    "health": health(),
    "passphrase": server.get_network().passphrase,
    "version": server.get_version_info().version,
    "latest": [latest.sequence, latest.id],
    "fees": [str(fees.soroban_inclusion_fee.p99), str(fees.inclusion_fee.p99)],
    "ledgers": [[it.sequence, it.hash, it.header_xdr, it.metadata_xdr]
                for it in walk_ledgers()],
    "transactions": transactions,
    "singles": [transaction(server.get_transaction(hash), hash) for hash, *_ in transactions[::37]],
    "events": [[it.id, kind(it.event_type), it.ledger, it.ledger_close_at if isinstance(it.ledger_close_at, str)
                else it.ledger_close_at.strftime("%Y-%m-%dT%H:%M:%SZ"), it.contract_id, it.transaction_hash,
                it.operation_index, it.transaction_index, it.in_successful_contract_call, it.topic, it.value]
               for it in walk(server.get_events, "events", 5000)],
}))
