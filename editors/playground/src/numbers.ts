/** Numbers as the page shows them. */

/** A share as a percentage; a tiny one never as zero. */
export function showShare(share: number): string {
  const percent = 100 * share;
  if (percent >= 99.95) {
    return "100 %";
  }
  if (percent >= 0.01) {
    return `${percent.toFixed(percent >= 10 ? 1 : 2)} %`;
  }
  return percent === 0 ? "0 %" : "< 0.01 %";
}

/** A time in milliseconds. */
export function showTime(ms: number): string {
  return `${ms >= 10 ? ms.toFixed(0) : ms.toFixed(1)} ms`;
}

/** How many forward passes an answer took; none if all that it needs is remembered. */
export function countPasses(number: number): string {
  return number === 0 ? "no new pass" : count(number, "pass", "passes");
}

/** A number with its noun. */
export function count(number: number, singular: string, plural = `${singular}s`): string {
  return `${number.toString()} ${number === 1 ? singular : plural}`;
}
