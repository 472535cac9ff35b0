// The words of the UI. English is the list of all of them; the compiler holds every other language to that list.

import { numbers, plurals } from '../format/intl';
import { en } from './en';

/** Forms by number, as Intl.PluralRules names them. */
export type Plural = Partial<Record<Intl.LDMLPluralRule, string>> & { other: string };
export type Key = keyof typeof en;
export type Words = Record<Key, string | Plural>;
export type Language = 'en' | 'ru';

const KEY = 'vitrina.language';

class Speech {
  language = $state<Language>('en');
  words = $state.raw<Words>(en);

  async start(): Promise<void> {
    const chosen = localStorage.getItem(KEY) ?? navigator.language.slice(0, 2);
    await this.choose(chosen === 'ru' ? 'ru' : 'en', false);
  }

  async choose(language: Language, keep = true): Promise<void> {
    this.words = language === 'ru' ? (await import('./ru')).ru : en;
    this.language = language;
    document.documentElement.lang = language;
    if (keep) localStorage.setItem(KEY, language);
  }
}

export const speech = new Speech();

export function t(key: Key, values: Record<string, string | number> = {}): string {
  const word = speech.words[key];
  const form = typeof word === 'string' ? word : plural(word, Number(values['n'] ?? 0));
  return form.replace(/\{(\w+)\}/g, (_, name: string) => shown(values[name]));
}

function plural(forms: Plural, n: number): string {
  return forms[plurals().select(n)] ?? forms.other;
}

function shown(value: string | number | undefined): string {
  return typeof value === 'number' ? numbers().format(value) : (value ?? '');
}
