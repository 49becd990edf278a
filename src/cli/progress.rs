//! Progress bars on standard error, which are drawn only on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Returns a bar of this template, without a length if that is unknown.
pub fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    // All templates are constants; if one were invalid, the default style would be used.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
