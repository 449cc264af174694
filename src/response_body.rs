//! The body of a response, decompressed if it is compressed. A wrong label has no effect: some
//! proxies decompress a body and keep its label, for which the HTTP client would refuse the body.
//! The client must not decompress bodies itself.

use std::io;
use std::mem;

use async_compression::tokio::bufread::GzipDecoder;
use futures_util::TryStreamExt;
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, HeaderMap};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, BufReader};
use tokio_util::io::StreamReader;

/// The names of the compression that is read.
const GZIP: [&str; 2] = ["gzip", "x-gzip"];

/// The names of others, which the request does not ask for.
const OTHERS: [&str; 4] = ["br", "compress", "deflate", "zstd"];

/// The first byte of a gzip file. Neither JSON nor a stream of events begins with it.
pub const FIRST_OF_GZIP: u8 = 0x1f;

/// The reason why a body breaks off.
#[derive(Debug)]
pub enum BodyError {
    /// The connection broke.
    Connection(reqwest::Error),
    /// The decoder found invalid or truncated data.
    Compression(io::Error),
}

/// A body that is read in pieces.
pub struct ResponseBody {
    bytes: Box<dyn AsyncBufRead + Send + Unpin>,
    /// True until the first byte, if the body is labelled as gzip.
    may_be_gzip: bool,
}

impl ResponseBody {
    /// The body of a response.
    pub fn new(response: Response) -> Self {
        let may_be_gzip = matches!(&compressions(response.headers())[..], [one] if is_gzip(one));
        let chunks = response.bytes_stream();
        let chunks = chunks.map_err(|error| io::Error::other(error.without_url()));
        Self { bytes: Box::new(StreamReader::new(Box::pin(chunks))), may_be_gzip }
    }

    /// The next bytes, or `None` at the end. Cancel-safe.
    ///
    /// # Errors
    /// The body breaks off.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, BodyError> {
        if self.may_be_gzip {
            let is_gzip = self.bytes.fill_buf().await?.first() == Some(&FIRST_OF_GZIP);
            self.may_be_gzip = false;
            if is_gzip {
                let packed = mem::replace(&mut self.bytes, Box::new(tokio::io::empty()));
                let mut unpacked = GzipDecoder::new(packed);
                unpacked.multiple_members(true);
                self.bytes = Box::new(BufReader::new(unpacked));
            }
        }
        let bytes = self.bytes.fill_buf().await?.to_vec();
        self.bytes.consume(bytes.len());
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    /// Appends to `body` until it has `limit` bytes or the body ends.
    ///
    /// # Errors
    /// The body breaks off. The bytes before that are kept.
    pub async fn read(mut self, body: &mut Vec<u8>, limit: usize) -> Result<(), BodyError> {
        while body.len() < limit
            && let Some(piece) = self.chunk().await?
        {
            body.extend_from_slice(&piece);
        }
        Ok(())
    }
}

impl BodyError {
    /// True if the decoder found damaged data.
    pub fn is_damage(&self) -> bool {
        let damage = [io::ErrorKind::InvalidData, io::ErrorKind::InvalidInput];
        matches!(self, Self::Compression(error) if damage.contains(&error.kind()))
    }
}

impl From<io::Error> for BodyError {
    fn from(error: io::Error) -> Self {
        error.downcast().map_or_else(Self::Compression, Self::Connection)
    }
}

/// Names the compression of a body that is not read, for an error message.
pub fn unread_compression(headers: &HeaderMap) -> Option<String> {
    let names = compressions(headers);
    let is_unread = names.len() > 1 || names.iter().any(|name| !is_gzip(name));
    is_unread.then(|| {
        let names = names.join(", ");
        format!("the body is compressed with {names}, which the request did not ask for")
    })
}

/// The known compressions of a body, in the order in which they were applied. Other names, such as
/// `identity` or a charset, are ignored.
fn compressions(headers: &HeaderMap) -> Vec<&str> {
    let values = headers.get_all(CONTENT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let is_known =
        |name: &&str| is_gzip(name) || OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other));
    values.flat_map(|value| value.split(',')).map(str::trim).filter(is_known).collect()
}

fn is_gzip(name: &str) -> bool {
    GZIP.iter().any(|gzip| name.eq_ignore_ascii_case(gzip))
}
