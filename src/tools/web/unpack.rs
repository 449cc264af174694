//! Unpacks the body of a page while it arrives.
//!
//! The HTTP client unpacks only what it asked for, and of a body in several parts only the first.
//! Servers and caches that ignore what a client accepts also send other forms.

use std::io;

use async_compression::tokio::bufread::{DeflateDecoder, GzipDecoder, ZlibDecoder};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};

/// The most forms that are unpacked one after another.
const FORMS_MAX: usize = 3;

/// A body, or a part of it that is unpacked.
pub(super) type PageBody = Box<dyn AsyncBufRead + Send + Unpin>;

/// The reason that a body cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum PackedError {
    #[error("it is packed in a form that is not read ({0}); download it with a command")]
    UnknownForm(String),
    #[error("it is packed more than {FORMS_MAX} times")]
    TooManyForms,
    #[error(transparent)]
    Broken(#[from] io::Error),
}

/// Returns the body without the forms that `content_encoding` lists in the order in which they were
/// applied.
///
/// # Errors
/// A form is unknown, or the body cannot be read.
pub(super) async fn unpack(
    mut body: PageBody,
    content_encoding: &str,
) -> Result<PageBody, PackedError> {
    let forms = content_encoding.split(',').map(|form| form.trim().to_ascii_lowercase());
    let forms: Vec<String> =
        forms.filter(|form| !matches!(form.as_str(), "" | "identity")).collect();
    if forms.len() > FORMS_MAX {
        return Err(PackedError::TooManyForms);
    }
    for form in forms.iter().rev() {
        // Nothing is packed as nothing by some servers.
        let Some(first) = body.fill_buf().await?.first().copied() else { return Ok(body) };
        body = match form.as_str() {
            "gzip" | "x-gzip" => {
                let mut unpacked = GzipDecoder::new(body);
                unpacked.multiple_members(true);
                buffered(unpacked)
            }
            "deflate" if is_zlib(first) => buffered(ZlibDecoder::new(body)),
            // Some servers leave out the header of zlib.
            "deflate" => buffered(DeflateDecoder::new(body)),
            _ => return Err(PackedError::UnknownForm(plain(form))),
        };
    }
    Ok(body)
}

fn buffered(unpacked: impl AsyncRead + Send + Unpin + 'static) -> PageBody {
    Box::new(BufReader::new(unpacked))
}

/// True if a body that begins with this byte has the header of zlib: a method, and a window of at
/// most 32 kB.
fn is_zlib(first: u8) -> bool {
    first & 0x0f == 8 && first >> 4 <= 7
}

/// The name of a form, which appears in text that the model trusts.
fn plain(form: &str) -> String {
    let letter = |letter: &char| letter.is_ascii_alphanumeric() || "-_.".contains(*letter);
    form.chars().filter(letter).take(20).collect()
}
