// Formatters of the language of the UI. Making one costs more than a thousand uses of it, so each is made once.

import { speech } from '../i18n/index.svelte';

const made = new Map<string, unknown>();

function once<T>(kind: string, make: (language: string) => T): T {
  const key = `${speech.language} ${kind}`;
  if (!made.has(key)) made.set(key, make(speech.language));
  return made.get(key) as T;
}

export function numbers(options: Intl.NumberFormatOptions = {}): Intl.NumberFormat {
  return once(`number ${JSON.stringify(options)}`, (language) => new Intl.NumberFormat(language, options));
}

export function times(options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  return once(`time ${JSON.stringify(options)}`, (language) => new Intl.DateTimeFormat(language, options));
}

export function plurals(): Intl.PluralRules {
  return once('plural', (language) => new Intl.PluralRules(language));
}
