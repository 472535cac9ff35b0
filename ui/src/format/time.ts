// Times and durations as people read them, in the language of the UI.

import { clock } from '../app/clock.svelte';
import { numbers, times } from './intl';
import { t } from '../i18n/index.svelte';

/** 850 ms · 4.2 s · 3 min 5 s · 2 h 10 min · 3 d 4 h */
export function duration(milliseconds: number): string {
  const seconds = milliseconds / 1000;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ${t('unit.ms')}`;
  if (seconds < 10) return `${numbers({ maximumFractionDigits: 1 }).format(seconds)} ${t('unit.s')}`;
  if (seconds < 60) return `${Math.floor(seconds)} ${t('unit.s')}`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return pair(minutes, 'unit.min', minutes < 10 ? Math.floor(seconds % 60) : 0, 'unit.s');
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return pair(hours, 'unit.h', minutes % 60, 'unit.min');
  return pair(Math.floor(hours / 24), 'unit.d', hours % 24, 'unit.h');
}

type Unit = 'unit.s' | 'unit.min' | 'unit.h' | 'unit.d';
function pair(large: number, unit: Unit, small: number, smaller: Unit): string {
  const first = `${large} ${t(unit)}`;
  return small ? `${first} ${small} ${t(smaller)}` : first;
}

/** Seconds that go by are counted, not measured. */
const whole = (milliseconds: number) => Math.floor(milliseconds / 1000) * 1000;

export function ago(time: string): string {
  const passed = clock.now - Date.parse(time);
  return passed < 2000 ? t('time.now') : t('time.ago', { time: duration(whole(passed)) });
}

export function until(time: string): string {
  const left = Date.parse(time) - clock.now;
  return left <= 0 ? t('time.due') : t('time.in', { time: duration(Math.max(whole(left), 1000)) });
}

/** Exact, for titles and details. */
export function moment(time: string): string {
  return times({ dateStyle: 'medium', timeStyle: 'medium' }).format(Date.parse(time));
}

const CLOCK: Intl.DateTimeFormatOptions = {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
  hourCycle: 'h23',
};

/** To the millisecond, for logs. */
export function stamp(time: string): string {
  return times(CLOCK).format(Date.parse(time));
}
