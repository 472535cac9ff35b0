import { defineConfig } from '@playwright/test';

// The server, its database and its tokens are those of tests/tests/outside/browser.rs, which runs all of this.
export default defineConfig({
  testDir: 'tests',
  workers: 1,
  forbidOnly: true,
  timeout: 150_000,
  expect: { timeout: 30_000 },
  reporter: 'list',
  use: {
    baseURL: process.env['VITRINA_URL'],
    viewport: { width: 1360, height: 850 },
    trace: 'off',
    screenshot: 'only-on-failure',
    launchOptions: {
      executablePath: process.env['CHROMIUM'],
      // Chromium refuses its sandbox to root, who runs tests in containers.
      args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
    },
  },
});
