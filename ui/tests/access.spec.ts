import { expect, expectAccessible, expectRussian, test, token } from './stand';

test('a token is asked for, refused when it is wrong, and gives its role', async ({ page, stand }) => {
  await stand.createPipeline('film_dim');
  await page.goto('/ui/');
  const dialog = page.getByRole('dialog', { name: 'A token, please' });
  await expect(dialog).toBeVisible();
  await expectAccessible(page);
  await dialog.getByLabel('Token').fill('wrong');
  await dialog.getByRole('button', { name: 'Enter' }).click();
  await expect(dialog.getByText('The server does not know this token.')).toBeVisible();
  await dialog.getByLabel('Token').fill(token('viewer'));
  await page.keyboard.press('Enter');
  await expect(dialog).toBeHidden();
  await expect(page.locator('tr[data-pipeline=film_dim]')).toBeVisible();
  await expect(page.getByRole('navigation')).toContainText('viewer');

  // What would be refused is not offered.
  await expect(page.getByRole('button', { name: 'Run film_dim' })).toHaveCount(0);
  await expect(page.getByRole('checkbox')).toHaveCount(0);
  await expect(page.getByRole('link', { name: 'New pipeline' })).toHaveCount(0);
  await page.getByRole('button', { name: 'Leave' }).click();
  await expect(dialog).toBeVisible();
});

test('each role sees what it may do', async ({ page, as }) => {
  await as('operator');
  await page.goto('/ui/');
  await expect(page.getByRole('button', { name: 'Run film_dim' })).toBeVisible();
  await expect(page.getByRole('link', { name: 'New pipeline' })).toHaveCount(0);
  await as('admin');
  await page.goto('/ui/?q=film');
  await expect(page.getByRole('link', { name: 'New pipeline' })).toBeVisible();
});

test('shortcuts work by the place of the key, on a Russian layout too', async ({ page, as }) => {
  await as('viewer');
  await page.goto('/ui/');
  await expect(page.locator('tr[data-pipeline=film_dim]')).toBeVisible();
  // As Ctrl+K arrives where К is written л.
  await page.evaluate(() =>
    window.dispatchEvent(new KeyboardEvent('keydown', { code: 'KeyK', key: 'л', ctrlKey: true, bubbles: true })),
  );
  const palette = page.getByRole('dialog', { name: 'Go to…' });
  await expect(palette).toBeVisible();
  await expectAccessible(page);
  await page.keyboard.press('Escape');
  await expect(palette).toBeHidden();
  await page.evaluate(() =>
    document.body.dispatchEvent(
      new KeyboardEvent('keydown', { code: 'Slash', key: '.', bubbles: true, cancelable: true }),
    ),
  );
  await expect(page.getByRole('searchbox')).toBeFocused();
});

test('everything is said in Russian as well, and stays so', async ({ page, stand, as }) => {
  await stand.runToEnd('film_dim');
  await as('admin');
  await page.goto('/ui/');
  await page.getByRole('button', { name: 'Русский' }).click();
  await expect(page.getByRole('heading', { name: 'Пайплайны' })).toBeVisible();
  await page.reload();
  await expect(page.locator('html')).toHaveAttribute('lang', 'ru');
  await expectAccessible(page);
  const tabs = ['', '/runs', '/logs', '/rejects', '/reconcile', '/state', '/edit'].map(
    (tab) => `/pipelines/film_dim${tab}`,
  );
  for (const path of ['/', '/new', ...tabs, '/targets', '/connections', '/runners', '/python', '/audit']) {
    await page.goto(`/ui${path}`);
    await expect(page.getByRole('button', { name: 'Команда CLI' })).toBeVisible();
    await expect(page.locator('main .panel, main .editor').first()).toBeVisible();
    await expectRussian(page);
  }
});

test('nothing is wider than a narrow screen', async ({ page, as }) => {
  await page.setViewportSize({ width: 400, height: 800 });
  await as('admin');
  for (const path of [
    '/',
    '/new',
    '/pipelines/film_dim',
    '/pipelines/film_dim/runs',
    '/pipelines/film_dim/reconcile',
    '/runners',
    '/audit',
  ]) {
    await page.goto(`/ui${path}`);
    await expect(page.locator('main .panel, main .editor').first()).toBeVisible();
    expect(await page.evaluate(() => document.documentElement.scrollWidth), path).toBe(400);
  }
});
