//! The ratios as a picture: one bar a workload, beside the line of its limit.

use std::fmt::Write;

use crate::report::Measured;

const WIDTH: f64 = 640.0;
const LABELS: f64 = 130.0;
const BAR: f64 = 26.0;
const TOP: f64 = 34.0;

/// A bar's length is the time taken, in units of its limit; the line stands at 1.
pub(crate) fn svg(results: &[Measured]) -> String {
    let longest = results.iter().map(|result| result.ratio).fold(1.5, f64::max);
    let scale = (WIDTH - LABELS - 70.0) / longest;
    let height = TOP + BAR * results.len() as f64 + 14.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"10\" y=\"20\" fill=\"#333333\">time of Vitrina ÷ time of its limit, shorter is better</text>\n"
    );
    for (place, result) in results.iter().enumerate() {
        let y = TOP + BAR * place as f64;
        let (length, text) = (result.ratio * scale, y + BAR / 2.0 + 4.0);
        writeln!(
            out,
            "<text x=\"10\" y=\"{text:.0}\" fill=\"#333333\">{}</text>\
             <rect x=\"{LABELS}\" y=\"{:.0}\" width=\"{length:.1}\" height=\"{:.0}\" fill=\"#3b6ea5\"/>\
             <text x=\"{:.1}\" y=\"{text:.0}\" fill=\"#333333\">{:.2}</text>",
            result.workload,
            y + 4.0,
            BAR - 8.0,
            LABELS + length + 6.0,
            result.ratio
        )
        .expect("a string takes everything");
    }
    let limit = LABELS + scale;
    writeln!(
        out,
        "<line x1=\"{limit:.1}\" y1=\"{TOP}\" x2=\"{limit:.1}\" y2=\"{:.0}\" stroke=\"#c0392b\" stroke-width=\"2\"/>\n</svg>",
        height - 10.0
    )
    .expect("a string takes everything");
    out
}
