//! Answers without an end: bodies that are made while they are sent. Knows bytes, not what they say.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http_body_util::{Either, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use warp::http::Response;

/// The pieces of a body, in their order.
type Pieces = BoxStream<'static, Bytes>;

/// A body that is made while it is sent. Warp takes bodies of its own alone, none of which can be made of
/// pieces as they are; so this one travels beside an empty body, and takes its place at the connection.
#[derive(Clone)]
pub(super) struct Flow(Arc<Mutex<Option<Pieces>>>);

impl Flow {
    pub(super) fn new(pieces: Pieces) -> Self {
        Self(Arc::new(Mutex::new(Some(pieces))))
    }

    /// Lets the flow be the body of a response.
    pub(super) fn flows_in<B>(self, response: &mut Response<B>) {
        response.extensions_mut().insert(self);
    }
}

/// A body as the HTTP library is given it: one that was there when the answer began, or one that is made
/// while it is sent.
pub(super) type Sent<B> = Either<B, StreamBody<Frames>>;

/// What is sent of a body, piece by piece.
type Frames = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// The response with the body that it is to have.
pub(super) fn sent<B>(mut response: Response<B>) -> Response<Sent<B>> {
    let flow = response.extensions_mut().remove::<Flow>();
    let pieces = flow.and_then(|flow| flow.0.lock().take());
    response.map(|body| match pieces {
        None => Either::Left(body),
        Some(pieces) => {
            Either::Right(StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece))).boxed()))
        }
    })
}
