//! Calls that bring a large file: the body goes to the operation as it arrives, and the answer is framed here.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Version, header};
use http_body::Frame;
use http_body_util::StreamBody;
use tonic::{Status, body::Body};

use crate::{authn::Caller, context::Context, operations, upload::Incoming};

pub(super) async fn answer(context: &Context, caller: Caller, request: Request<Body>) -> Response<Body> {
    let (path, version) = (request.uri().path().to_owned(), request.version());
    let mut incoming = Incoming::new(request.into_body(), caller.clone(), context.upload_idle);
    match operations::upload(context, &path, caller, &mut incoming).await {
        Ok(reply) => replied(&reply),
        Err(refusal) => {
            // HTTP/2 ends a request that nobody reads on with a word of its own.
            if version < Version::HTTP_2 {
                incoming.drain().await;
            }
            Status::from(refusal).into_http()
        }
    }
}

/// One message and the status that says that this was all.
fn replied(message: &[u8]) -> Response<Body> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    let framed = Bytes::from([&[0], &length[..], message].concat());
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = [Ok::<_, Status>(Frame::data(framed)), Ok(Frame::trailers(trailers))];
    let mut answer = Response::new(Body::new(StreamBody::new(tokio_stream::iter(frames))));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    answer
}
