//! Extracts pages from a PDF.

use std::collections::{BTreeMap, BTreeSet};

use lopdf::{Dictionary, Document, Error, LoadOptions, ObjectId};

use crate::transcript::visible_pages;

use super::super::outcome::ToolError;
use super::kind::pdf_header;
use super::pages::{self, PAGES_MAX};

/// The maximum result of one call, in bytes. In base64 it is half of a request's limit.
pub(super) const PDF_BYTES_MAX: usize = 12 << 20;

/// The maximum decompressed size of one stream of the file, in bytes.
const DECODED_MAX: usize = 32 << 20;

/// A PDF that the API accepts.
#[derive(Debug)]
pub(super) struct Pdf {
    pub(super) data: Vec<u8>,
    /// The number of pages in the file.
    pub(super) count: u32,
    /// The pages that are shown, if not all.
    pub(super) part: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PdfFlaw {
    #[error("it is a damaged PDF ({why})")]
    Damaged { why: String },
    #[error("it is encrypted. Decrypt a copy, if you may, with `qpdf --decrypt` and Read that")]
    Encrypted,
    #[error("no pages can be found in it")]
    NoPages,
    #[error(
        "it has {count} pages, and at most {PAGES_MAX} can be read at once. Say which, for example \
         with pages: \"1-{PAGES_MAX}\""
    )]
    TooManyPages { count: u32 },
    #[error(transparent)]
    BadPages(#[from] ToolError),
    #[error(
        "these pages have {bytes} bytes, and at most {PDF_BYTES_MAX} can be read at once. Ask for \
         fewer, for example with pages: \"1-2\""
    )]
    TooManyBytes { bytes: usize },
}

/// Checks a PDF, and extracts the pages that are `wanted`.
pub(super) fn prepare(mut data: Vec<u8>, wanted: Option<&str>) -> Result<Pdf, PdfFlaw> {
    // Positions in the file count from the header.
    data.drain(..pdf_header(&data).unwrap_or(0));
    let mut document = load(&data)?;
    // The API rejects an encrypted file even if it opens without a password.
    let is_plain = document.encryption_state.take().is_none();
    let found = document.get_pages();
    let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
    if count == 0 {
        return Err(PdfFlaw::NoPages);
    }
    let picked = match wanted.filter(|wanted| !wanted.trim().is_empty()) {
        Some(wanted) => pages::select_pages(wanted, count)?,
        None if found.len() > PAGES_MAX => return Err(PdfFlaw::TooManyPages { count }),
        None => (1..=count).collect(),
    };
    let part = (picked.len() < found.len()).then(|| pages::format_pages(&picked));
    let is_sound =
        is_plain && document.xref_recovery.is_none() && visible_pages(&data) >= found.len();
    let data = if part.is_none() && is_sound {
        data
    } else {
        drop(data);
        if part.is_some() {
            keep_only(&mut document, &found, &picked)?;
        }
        save_and_check(document, picked.len())?
    };
    if data.len() > PDF_BYTES_MAX {
        return Err(PdfFlaw::TooManyBytes { bytes: data.len() });
    }
    Ok(Pdf { data, count, part })
}

fn load(data: &[u8]) -> Result<Document, PdfFlaw> {
    let options = LoadOptions::with_max_decompressed_size(DECODED_MAX);
    match Document::load_mem_with_options(data, options) {
        Ok(document) if document.trailer.has(b"Encrypt") => Err(PdfFlaw::Encrypted),
        Ok(document) => Ok(document),
        Err(Error::InvalidPassword | Error::Decryption(_)) => Err(PdfFlaw::Encrypted),
        Err(error) => Err(damaged(&error)),
    }
}

fn damaged(why: &impl ToString) -> PdfFlaw {
    PdfFlaw::Damaged { why: why.to_string() }
}

/// Removes all pages but `picked`, and everything that only the others need.
fn keep_only(
    document: &mut Document,
    found: &BTreeMap<u32, ObjectId>,
    picked: &BTreeSet<u32>,
) -> Result<(), PdfFlaw> {
    let picked_ids: BTreeSet<ObjectId> =
        picked.iter().filter_map(|page| found.get(page)).copied().collect();
    let others: Vec<u32> =
        found.iter().filter(|(_, id)| !picked_ids.contains(id)).map(|(page, _)| *page).collect();
    document.delete_pages(&others);
    let catalog = document.catalog_mut().map_err(|error| damaged(&error))?;
    // Bookmarks, forms and structure trees refer to all pages, and would keep them in the file.
    let mut lean = Dictionary::new();
    for key in [b"Type".as_slice(), b"Pages", b"Version", b"OCProperties"] {
        if let Ok(value) = catalog.get(key) {
            lean.set(key, value.clone());
        }
    }
    *catalog = lean;
    for id in picked_ids {
        if let Ok(page) = document.get_dictionary_mut(id) {
            page.remove(b"B");
        }
    }
    document.trailer.remove(b"Info");
    document.prune_objects();
    Ok(())
}

/// Writes the document without compressed object streams, and checks that it can be read again.
fn save_and_check(mut document: Document, pages: usize) -> Result<Vec<u8>, PdfFlaw> {
    let mut data = Vec::new();
    document.save_to(&mut data).map_err(|error| damaged(&error))?;
    drop(document);
    let again = load(&data)?.get_pages().len();
    if again != pages {
        let why = format!("{again} of {pages} pages are left when they are taken out");
        return Err(PdfFlaw::Damaged { why });
    }
    Ok(data)
}
