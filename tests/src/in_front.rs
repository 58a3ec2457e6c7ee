//! What stands in front of a server: addresses behind it, and connections that it takes and makes.

use std::io::{self, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

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

/// The URL of a database behind a proxy at this port, with an option that keeps drivers from going around it.
pub(crate) fn behind(url: &str, port: u16, option_on_postgres: &str) -> String {
    let option = match url.starts_with("mysql") {
        true => "?prefer_socket=false", // mysql_async would take the server's Unix socket
        false => option_on_postgres,
    };
    on_port(url, port) + option
}

/// Takes connections on a free port, which is returned. Ends with the process.
pub(crate) fn listen(mut take: impl FnMut(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let _ = client.set_nodelay(true); // only slower without
            take(client);
        }
    });
    port
}

/// Connects to a port of this machine.
pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    let _ = stream.set_nodelay(true); // only slower without
    Ok(stream)
}

/// Forwards one direction of a connection on a thread of its own, piece by piece, for as long as `pass` passes them on; then it ends both.
pub(crate) fn forward(
    from: &TcpStream,
    to: &TcpStream,
    mut pass: impl FnMut(&[u8], &mut TcpStream) -> io::Result<()> + Send + 'static,
) {
    let (mut from, mut to) = (handle(from), handle(to));
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length) = from.read(&mut buffer) {
            // The end of a connection is passed on too.
            if pass(&buffer[..length], &mut to).is_err() || length == 0 {
                break;
            }
        }
        end([&from, &to]);
    });
}

/// Ends connections.
pub(crate) fn end<'a>(streams: impl IntoIterator<Item = &'a TcpStream>) {
    for stream in streams {
        let _ = stream.shutdown(Shutdown::Both); // it may be gone
    }
}

/// Another handle of the same connection.
pub(crate) fn handle(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("another handle")
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
