//! The second package prefix: unmodified clients call `viam.X`, our own `platform.X`. One service answers both.

use http::{Request, Uri, uri::PathAndQuery};

/// What existing clients put before every package name except proto.* and grpc.*.
const THEIRS: &str = "/viam.";
/// What the contract in `api` says.
const OURS: &str = "/platform.";

/// Rewrites the path to the name under which the service is known here.
pub(super) fn canonical<B>(request: &mut Request<B>) {
    let Some(rest) = request.uri().path().strip_prefix(THEIRS) else { return };
    // A path that was one stays one: only letters before its first dot change.
    let Ok(path) = PathAndQuery::try_from(format!("{OURS}{rest}")) else { return };
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.path_and_query = Some(path);
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_prefix_changes() {
        let table = [
            ("/viam.app.v1.AppService/GetRobot", "/platform.app.v1.AppService/GetRobot"),
            ("/platform.app.v1.AppService/GetRobot", "/platform.app.v1.AppService/GetRobot"),
            ("http://h:1/viam.app.v1.X/Y", "/platform.app.v1.X/Y"),
            ("/viamx.app.v1.X/Y", "/viamx.app.v1.X/Y"),
            ("/proto.rpc.v1.AuthService/Authenticate", "/proto.rpc.v1.AuthService/Authenticate"),
            ("/healthz", "/healthz"),
        ];
        for (sent, known) in table {
            let mut request = Request::builder().uri(sent).body(()).unwrap();
            canonical(&mut request);
            assert_eq!(request.uri().path(), known, "{sent}");
        }
    }
}
