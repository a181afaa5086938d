// @ts-check
// Numbers as people read them, the same as in the package.

/** @param {number | string} exponent */
export const raised = (exponent) =>
  [...String(exponent)].map((sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]).join("");

/** A number with so many significant digits, as the package writes it everywhere: plain from 0.001 to 99,999, beyond it
 * as a multiple of a power of ten. What is no number is shown as it is.
 * @param {unknown} number @param {number} [digits] @returns {string} */
export function show(number, digits = 6) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  if (typeof number !== "number") return String(number);
  const size = Math.abs(number);
  const sign = number < 0 ? "−" : "";
  if (size === Infinity) return `${sign}∞`;
  const grouped = (/** @type {string} */ text) =>
    text.replace(/^\d{5,}/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));
  if (size === 0 || (Number.isInteger(size) && size < 1e5)) return `${sign}${grouped(String(size))}`;
  if (size >= 1e-3 && size < 1e5) {
    if (size >= 10 ** digits) return `${sign}${grouped(size.toFixed(0))}`;
    const text = size.toPrecision(digits);
    if (text.includes("e")) return `${sign}${grouped(String(Number(text)))}`;
    return `${sign}${grouped(text.includes(".") ? text.replace(/\.?0+$/, "") : text)}`;
  }
  const [front, power] = size.toExponential(digits - 1).split("e");
  return `${sign}${front.includes(".") ? front.replace(/\.?0+$/, "") : front}×10${raised(power.replace("+", ""))}`;
}
