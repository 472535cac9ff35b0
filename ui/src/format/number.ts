import { numbers } from './intl';
import { t } from '../i18n/index.svelte';

export function number(value: number): string {
  return numbers().format(value);
}

/** 12.4 k: where the order of magnitude is what matters. */
export function short(value: number): string {
  return numbers({ notation: 'compact', maximumFractionDigits: 1 }).format(value);
}

export function percent(share: number): string {
  return numbers({ style: 'percent', maximumFractionDigits: 2 }).format(share);
}

export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = value > 0 ? Math.min(Math.floor(Math.log2(value) / 10), units.length - 1) : 0;
  const digits = power === 0 ? 0 : 1;
  return `${numbers({ maximumFractionDigits: digits }).format(value / 1024 ** power)} ${units[power]}`;
}

/** Rows a second of something that has an end; null where that says nothing. */
export function rate(rows: number, milliseconds: number | null | undefined): number | null {
  return milliseconds && rows ? (rows * 1000) / milliseconds : null;
}

export function rowsPerSecond(value: number): string {
  return t('rows.rate', { rate: short(value) });
}
