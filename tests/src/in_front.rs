//! Addresses of databases behind a program that stands in front of their server.

/// The port in the URL of a server, or of a database on it.
pub(crate) fn port_of(url: &str) -> u16 {
    let (_, port, _) = split(url);
    port.parse().expect("a port")
}

/// The same URL with another port.
pub(crate) fn on_port(url: &str, port: u16) -> String {
    let (before, _, path) = split(url);
    format!("{before}{port}{path}")
}

/// The URL up to its port, the port, and the path.
fn split(url: &str) -> (&str, &str, &str) {
    let begin = url.rfind(':').expect("a URL with a port") + 1;
    let end = url[begin..].find('/').map_or(url.len(), |at| begin + at);
    (&url[..begin], &url[begin..end], &url[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_port_changes() {
        let server = "postgres://postgres@127.0.0.1:5432";
        assert_eq!(port_of(server), 5432);
        assert_eq!(on_port(server, 6432), "postgres://postgres@127.0.0.1:6432");
        let database = "mysql://root@127.0.0.1:3306/shop";
        assert_eq!(port_of(database), 3306);
        assert_eq!(on_port(database, 80), "mysql://root@127.0.0.1:80/shop");
    }
}
