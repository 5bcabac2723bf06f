//! What can be called: one constant per operation, made by `build.rs` from the contract.
//!
//! A method knows its path, its messages and how it streams, so a caller can neither mistype a path nor send one
//! operation's request to another. The constants live beside the messages of their package, in a module named after the
//! service: `pb::platform::app::v1::app_service::GET_ROBOT_PART`.

use std::marker::PhantomData;

/// One request, one response.
pub struct Unary<Request, Response> {
    /// `/package.Service/Method`, as it stands in the request line.
    pub path: &'static str,
    messages: PhantomData<fn(Request) -> Response>,
}

/// One request, responses until the server ends the stream.
pub struct ServerStream<Request, Response> {
    /// `/package.Service/Method`, as it stands in the request line.
    pub path: &'static str,
    messages: PhantomData<fn(Request) -> Response>,
}

/// Any number of requests, one response at the end.
pub struct ClientStream<Request, Response> {
    /// `/package.Service/Method`, as it stands in the request line.
    pub path: &'static str,
    messages: PhantomData<fn(Request) -> Response>,
}

macro_rules! plain_value {
    ($kind:ident) => {
        impl<Request, Response> $kind<Request, Response> {
            /// A method at this path; the contract's own are made by `build.rs`.
            pub const fn at(path: &'static str) -> Self {
                Self { path, messages: PhantomData }
            }
        }

        // Not derived: a derive would ask the messages to be `Copy` too.
        impl<Request, Response> Clone for $kind<Request, Response> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<Request, Response> Copy for $kind<Request, Response> {}
    };
}

plain_value!(Unary);
plain_value!(ServerStream);
plain_value!(ClientStream);
