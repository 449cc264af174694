//! Unpacks the body of a page while it arrives.
//!
//! The HTTP client unpacks only the encodings that it accepts, and only the first of several
//! members of a body. Servers and caches that ignore the accepted encodings send others, too.

use std::io;

use async_compression::tokio::bufread::{DeflateDecoder, GzipDecoder, ZlibDecoder};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};

use crate::response_body::FIRST_OF_GZIP;

/// The most forms that are unpacked one after another. A form within another one would be unpacked
/// in memory in one step, for which no limit of time could hold: a few kilobytes can be gigabytes
/// in the form between.
const FORMS_MAX: usize = 1;

/// The forms that are unpacked.
const READ: [&str; 3] = ["gzip", "x-gzip", "deflate"];

/// The known forms that are not unpacked. Other names, such as `identity` or a charset, are
/// ignored.
const NOT_READ: [&str; 6] = ["br", "zstd", "compress", "x-compress", "dcb", "dcz"];

/// A body, or a part of it that is unpacked.
pub(super) type PageBody = Box<dyn AsyncBufRead + Send + Unpin>;

#[derive(Debug, thiserror::Error)]
pub(super) enum PackedError {
    #[error("it is packed in a form that is not read ({0}); download it with a command")]
    UnreadForm(&'static str),
    #[error("it is packed more than once ({0}); download it with a command")]
    TooManyForms(String),
    #[error(transparent)]
    Broken(#[from] io::Error),
}

/// Returns the body without the forms that `content_encoding` lists in the order in which they were
/// applied.
pub(super) async fn unpack(
    mut body: PageBody,
    content_encoding: &str,
) -> Result<PageBody, PackedError> {
    let known = |text: &str| {
        let text = text.trim();
        let mut forms = READ.into_iter().chain(NOT_READ);
        forms.find(|form| form.eq_ignore_ascii_case(text))
    };
    let forms: Vec<&'static str> = content_encoding.split(',').filter_map(known).collect();
    let Some(form) = forms.last().copied() else { return Ok(body) };
    // Some servers send an empty body with an encoding.
    let Some(first) = body.fill_buf().await?.first().copied() else { return Ok(body) };
    if let Some(unread) = forms.iter().copied().find(|form| NOT_READ.contains(form)) {
        return Err(PackedError::UnreadForm(unread));
    }
    if forms.len() > FORMS_MAX {
        return Err(PackedError::TooManyForms(forms[..=FORMS_MAX].join(", ")));
    }
    Ok(match form {
        "deflate" if is_zlib(first) => buffered(ZlibDecoder::new(body)),
        // Some servers leave out the header of zlib.
        "deflate" => buffered(DeflateDecoder::new(body)),
        // A proxy has unpacked the body and kept its label.
        _ if first != FIRST_OF_GZIP => body,
        _ => {
            let mut unpacked = GzipDecoder::new(body);
            unpacked.multiple_members(true);
            buffered(unpacked)
        }
    })
}

fn buffered(unpacked: impl AsyncRead + Send + Unpin + 'static) -> PageBody {
    Box::new(BufReader::new(unpacked))
}

/// True if a body that begins with this byte has the header of zlib: a method, and a window of at
/// most 32 kB.
fn is_zlib(first: u8) -> bool {
    first & 0x0f == 8 && first >> 4 <= 7
}
