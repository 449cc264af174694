//! Images and documents that services refuse: they are replaced by notes.

use crate::recovery::{ClassifiedFault, ErrorClass, OptionalField};
use crate::transcript::{StripTarget, strip_media};

use super::compactor::ContextView;

/// Media that are kept, in bytes, after a request was too large.
const MEDIA_LEFT: u64 = 4_000_000;
/// Images that are kept when there were too many (the service's limit for large ones).
const IMAGES_LEFT: usize = 20;

impl ContextView<'_> {
    /// Removes the media that a refusal is about, so that the same request is not sent again.
    pub(super) fn strip_media(&mut self) {
        let Some(which) = self.caller.last_failure().map(which_media) else { return };
        if which == StripTarget::ImagesOfAnySize {
            self.drop_refused_field(&[OptionalField::Images]);
        }
        self.conversation.edit_history(self.journal, |messages| {
            // The media that a refusal names may be absent.
            if strip_media(messages, which).is_empty() {
                strip_media(messages, StripTarget::All);
            }
        });
    }

    /// Removes images added since the service refused images.
    pub(super) fn leave_out_refused_images(&mut self) {
        let endpoint = self.caller.endpoint();
        if !endpoint.client.accepts_field(&endpoint.facts.name, OptionalField::Images) {
            self.conversation.leave_out_images();
        }
    }
}

/// Returns the media to remove after a refusal.
fn which_media(refusal: &ClassifiedFault) -> StripTarget {
    let ClassifiedFault { fault, failure } = refusal;
    let most = fault.most_images();
    match (failure.class, refusal.rejected_block()) {
        (ErrorClass::RequestTooLarge, _) => StripTarget::DownTo { bytes: MEDIA_LEFT },
        _ if most == Some(0) => StripTarget::ImagesOfAnySize,
        (ErrorClass::ImageTooLarge, _) if most.is_some() || fault.detail().contains("many") => {
            StripTarget::ImagesBut {
                newest: most.map_or(IMAGES_LEFT, |most| most.min(IMAGES_LEFT)),
            }
        }
        _ if refusal.refuses_all_images() => StripTarget::ImagesOfAnySize,
        (_, Some(path)) => StripTarget::At(path),
        (ErrorClass::PdfTooLarge, None) => StripTarget::Documents,
        (ErrorClass::ImageTooLarge, None) => StripTarget::Images,
        (_, None) => StripTarget::All,
    }
}
