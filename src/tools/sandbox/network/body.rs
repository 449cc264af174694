//! Copies exactly the body of a request: bytes after it could be a second request, for another
//! host.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy};

/// The longest line of a chunked body, in bytes.
const LINE_MAX: u64 = 8 << 10;

const CHUNK_END: [u8; 2] = *b"\r\n";

/// The framing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    Bytes(u64),
    Chunked,
}

pub(super) async fn copy_body(
    mut from: impl AsyncBufRead + Unpin,
    to: &mut (impl AsyncWrite + Unpin),
    length: BodyLength,
) -> io::Result<()> {
    match length {
        BodyLength::Bytes(count) => copy_bytes(&mut from, to, count).await,
        BodyLength::Chunked => loop {
            let line = read_line(&mut from).await?;
            let size = chunk_size(&line).ok_or(io::ErrorKind::InvalidData)?;
            to.write_all(&line).await?;
            if size > 0 {
                copy_bytes(&mut from, to, size).await?;
                // A lenient server could take other bytes here for the next chunk.
                let mut end = [0; CHUNK_END.len()];
                from.read_exact(&mut end).await?;
                if end != CHUNK_END {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                to.write_all(&end).await?;
                continue;
            }
            // Trailers, up to an empty line.
            loop {
                let line = read_line(&mut from).await?;
                to.write_all(&line).await?;
                if line == CHUNK_END {
                    return to.flush().await;
                }
            }
        },
    }
}

async fn copy_bytes(
    from: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    count: u64,
) -> io::Result<()> {
    let copied = copy(&mut from.take(count), to).await?;
    to.flush().await?;
    if copied == count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

async fn read_line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut line).await?;
    if line.ends_with(b"\r\n") { Ok(line) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Parses the first line of a chunk. Extensions are refused: programs could disagree about them.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.strip_suffix(b"\r\n")?;
    let is_plain = !digits.is_empty() && digits.len() <= 15;
    let digits = str::from_utf8(digits).ok().filter(|_| is_plain)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn copied(text: &str, length: BodyLength) -> Result<String, io::ErrorKind> {
        let mut to = Vec::new();
        let done = copy_body(text.as_bytes(), &mut to, length).await;
        done.map_err(|error| error.kind())?;
        Ok(String::from_utf8(to).expect("text"))
    }

    #[tokio::test]
    async fn nothing_behind_a_body_is_copied() {
        let second = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";
        for (body, length) in [
            ("", BodyLength::Bytes(0)),
            ("12345", BodyLength::Bytes(5)),
            ("0\r\n\r\n", BodyLength::Chunked),
            ("5\r\n12345\r\nA\r\n0123456789\r\n0\r\n\r\n", BodyLength::Chunked),
            ("1\r\n1\r\n0\r\nTrailer: x\r\n\r\n", BodyLength::Chunked),
        ] {
            let with_second = format!("{body}{second}");
            assert_eq!(copied(&with_second, length).await.as_deref(), Ok(body), "{length:?}");
        }
    }

    #[tokio::test]
    async fn malformed_bodies_are_errors() {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        for (body, length, kind) in [
            ("1234", BodyLength::Bytes(5), UnexpectedEof),
            ("", BodyLength::Chunked, InvalidData),
            ("x\r\n", BodyLength::Chunked, InvalidData),
            ("+1\r\n1\r\n0\r\n\r\n", BodyLength::Chunked, InvalidData),
            ("1;a=b\r\n1\r\n0\r\n\r\n", BodyLength::Chunked, InvalidData),
            ("1\n1\r\n0\r\n\r\n", BodyLength::Chunked, InvalidData),
            ("\r\n", BodyLength::Chunked, InvalidData),
            ("5\r\n1\r\n", BodyLength::Chunked, UnexpectedEof),
            ("1\r\n1\r", BodyLength::Chunked, UnexpectedEof),
            ("1\r\n1\n\n0\r\n\r\n", BodyLength::Chunked, InvalidData),
            ("1\r\n1xy0\r\n\r\n", BodyLength::Chunked, InvalidData),
            ("1\r\n1\n0\r\n\r\n", BodyLength::Chunked, InvalidData),
            ("ffffffffffffffff\r\n", BodyLength::Chunked, InvalidData),
        ] {
            assert_eq!(copied(body, length).await, Err(kind), "{body:?}");
        }
    }
}
