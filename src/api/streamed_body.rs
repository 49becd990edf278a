//! Streamed responses: bodies that are produced while they are sent. Does not depend on their
//! content.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http_body_util::{Either, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use warp::http::Response;

/// Pieces of a body, in order.
type Pieces = BoxStream<'static, Bytes>;

/// A body that is produced while it is sent. Warp accepts only its own body types, none of which
/// can be built from a stream of `Bytes` as they are. This type is therefore attached to a response
/// with an empty body, and [`sent`] puts it in place of that body at the connection.
#[derive(Clone)]
pub(super) struct StreamedBody(Arc<Mutex<Option<Pieces>>>);

impl StreamedBody {
    pub(super) fn new(pieces: Pieces) -> Self {
        Self(Arc::new(Mutex::new(Some(pieces))))
    }

    /// Attaches the stream to a response as its body.
    pub(super) fn attach_to<B>(self, response: &mut Response<B>) {
        response.extensions_mut().insert(self);
    }
}

/// Body as passed to hyper: either the complete body of the response, or a streamed one.
pub(super) type Sent<B> = Either<B, StreamBody<Frames>>;

/// HTTP frames of a streamed body.
type Frames = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// Replaces the body of a response with its attached stream, if there is one.
pub(super) fn sent<B>(mut response: Response<B>) -> Response<Sent<B>> {
    let streamed = response.extensions_mut().remove::<StreamedBody>();
    let pieces = streamed.and_then(|body| body.0.lock().take());
    response.map(|body| match pieces {
        None => Either::Left(body),
        Some(pieces) => {
            Either::Right(StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece))).boxed()))
        }
    })
}
