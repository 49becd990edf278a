# python3 receiver.py
import hashlib, hmac, json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["WEBHOOK_SECRET"].encode()


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are used again

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        expected = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
        signed = hmac.compare_digest(expected.encode(), self.headers.get("X-Service-Signature", "").encode())
        if signed:
            event = json.loads(body)["event"]
            # Delivery is at least once: store this id, or the event's, with the effects, and skip repeats.
            delivery = self.headers["X-Service-Delivery"]
            print(delivery, event["contract_id"], json.dumps(event["body"]["v0"]), flush=True)
        self.send_response(204 if signed else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", 9100))), Receiver).serve_forever()
