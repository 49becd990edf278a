//! Needs: cargo add bytes hex hmac@0.12 serde_json sha2@0.10, tokio -F full, warp -F server
use bytes::Bytes;
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;
use warp::{Filter, http::StatusCode};

fn is_signed(secret: &str, body: &[u8], signature: &str) -> bool {
    let code = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
    hex::decode(signature).is_ok_and(|given| code.chain_update(body).verify_slice(&given).is_ok())
}

#[tokio::main]
async fn main() {
    let secret = std::env::var("WEBHOOK_SECRET").expect("WEBHOOK_SECRET is the subscription's");
    let port = std::env::var("PORT").map_or(9100, |port| port.parse().expect("a port"));
    let receiver = warp::post()
        .and(warp::header("x-service-signature"))
        .and(warp::header("x-service-delivery"))
        .and(warp::body::content_length_limit(4 << 20))
        .and(warp::body::bytes())
        .map(move |signature: String, delivery: String, body: Bytes| {
            if !is_signed(&secret, &body, &signature) {
                return StatusCode::UNAUTHORIZED;
            }
            let Ok(payload) = serde_json::from_slice::<Value>(&body) else {
                return StatusCode::BAD_REQUEST;
            };
            let event = &payload["event"];
            // Delivery is at least once: store this id, or the event's, with the effects, and skip repeats.
            println!("{delivery} {} {}", event["contract_id"], event["body"]["v0"]);
            StatusCode::NO_CONTENT
        });
    warp::serve(receiver).run(([127, 0, 0, 1], port)).await;
}
