package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	cdruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long something that must happen is waited for. It bounds a test that would hang, and measures nothing.
const patience = 30 * time.Second

// chromium finds a browser, or skips the test.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium here: `make browser` installs it, as root on Debian")
	return ""
}

// startBrowser starts one browser, without a screen, and ends it with the test.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(t.TempDir()),
		// Whoever it asks for, but this machine, is not there.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to have one as root
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...) // ended by the cleanup, in order
	t.Cleanup(cancel)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return ctx
}

// tab is one page of the browser, with everything that went wrong in it.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu       sync.Mutex
	outside  []string // requests to anywhere else
	problems []string // exceptions
}

// watchPolicy notes what the page's policy stopped.
const watchPolicy = `window.stopped = []; document.addEventListener('securitypolicyviolation', (e) => window.stopped.push(e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sample));`

// newTab opens a page of a server. At its end nothing may have been asked of anybody else, stopped by the page's policy, or thrown.
func newTab(browser context.Context, t *testing.T, base string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	x := &tab{t: t, ctx: ctx, base: base}
	t.Cleanup(func() {
		x.shot("end")
		x.wantInnocent()
		cancel()
	})
	if err := chromedp.Listen(ctx, x.heard); err != nil {
		t.Fatalf("open a page: %v", err)
	}
	// A tab that another one hides, while that closes, holds no connection, as it should.
	x.do("be in front", call(page.BringToFront, cdp.Empty{}), call(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}))
	x.do("watch a page", call(network.Enable, network.EnableParams{}), call(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchPolicy}))
	x.size(1280, 900, "light")
	return x
}

// call is a command of the protocol as a step.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (x *tab) heard(ev any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch e := ev.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err == nil && (u.Scheme == "blob" || u.Scheme == "about") {
			return
		}
		if err != nil || u.Scheme+"://"+u.Host != x.base {
			x.outside = append(x.outside, e.Request.URL)
		}
	case *cdruntime.EventExceptionThrown:
		x.problems = append(x.problems, fmt.Sprintf("%s %s:%d", e.ExceptionDetails.Text, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber))
	}
}

func (x *tab) wantInnocent() {
	x.t.Helper()
	x.mu.Lock()
	outside, problems := x.outside, x.problems
	x.mu.Unlock()
	if len(outside) > 0 {
		x.t.Errorf("asked outside of its origin: %q", outside)
	}
	if len(problems) > 0 {
		x.t.Errorf("threw: %q", problems)
	}
	if stopped := value[[]string](x, `window.stopped ?? []`); len(stopped) > 0 {
		x.t.Errorf("the policy stopped: %q", stopped)
	}
}

// do runs steps, bounded.
func (x *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		x.fail(what, err)
	}
}

func (x *tab) fail(what string, err error) {
	x.t.Helper()
	x.shot("failed")
	x.t.Fatalf("%s: %v; the page:\n%.3000s", what, err, x.textNow())
}

func (x *tab) textNow() string {
	ctx, cancel := context.WithTimeout(x.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// open goes to an address of the console.
func (x *tab) open(path string) {
	x.t.Helper()
	x.do("open "+path, chromedp.Navigate(x.base+path), chromedp.WaitVisible(chromedp.CSS("main")))
}

// value evaluates an expression in the page.
func value[T any](x *tab, expression string) T {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		x.fail("evaluate "+expression, err)
	}
	return v
}

// until waits for an expression to hold. The page's policy lets no text become code, so it is asked from here.
func (x *tab) until(what, expression string) {
	x.t.Helper()
	tick, over := time.NewTicker(50*time.Millisecond), time.NewTimer(patience)
	defer tick.Stop()
	defer over.Stop()
	for !value[bool](x, "!!("+expression+")") {
		select {
		case <-tick.C:
		case <-over.C:
			x.fail("wait until "+what, context.DeadlineExceeded)
		}
	}
}

// sees waits for a text on the page.
func (x *tab) sees(text string) {
	x.t.Helper()
	x.until("the page says "+text, fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// click clicks what is called so and can be seen, as soon as it is there.
func (x *tab) click(label string) {
	x.t.Helper()
	x.until("there is "+label, fmt.Sprintf(`(() => {
		const found = [...document.querySelectorAll('button, summary, a, label')].find((b) => b.innerText.trim().startsWith(%q) && b.checkVisibility() && !b.disabled);
		found?.click();
		return found;
	})()`, label))
}

func (x *tab) typeInto(selector, text string) {
	x.t.Helper()
	x.do("type into "+selector, chromedp.WaitVisible(chromedp.CSS(selector)), chromedp.SendKeys(chromedp.CSS(selector), text))
}

// pressUntil presses a key outside of every text field, again and again, until an expression holds.
func (x *tab) pressUntil(key, expression string) {
	x.t.Helper()
	over := time.NewTimer(patience)
	defer over.Stop()
	for !value[bool](x, "document.activeElement.blur(), !!("+expression+")") {
		select {
		case <-over.C:
			x.fail("press "+key+" until "+expression, context.DeadlineExceeded)
		default:
			x.do("press "+key, chromedp.KeyEvent(key))
		}
	}
}

// press presses keys where the focus is.
func (x *tab) press(keys string, options ...chromedp.KeyOption) {
	x.t.Helper()
	x.do("press "+keys, chromedp.KeyEvent(keys, options...))
}

// tabTo goes on with the Tab key until what begins with a label has the focus, and sees to it that this can be seen.
func (x *tab) tabTo(label string, options ...chromedp.KeyOption) {
	x.t.Helper()
	has := fmt.Sprintf(`((e) => (e.getAttribute('aria-label') ?? '').startsWith(%[1]q) || (e.placeholder ?? '').startsWith(%[1]q) || e.innerText.trim().startsWith(%[1]q))(document.activeElement) && document.activeElement !== document.body && document.activeElement.id !== 'main'`, label)
	for range 100 {
		x.press("\t", options...)
		if value[bool](x, has) {
			if !value[bool](x, `((e, s) => e.checkVisibility() && s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2)(document.activeElement, getComputedStyle(document.activeElement))`) {
				x.t.Errorf("who has come to %s with the keyboard does not see it", label)
			}
			return
		}
	}
	x.fail("tab to "+label, errors.New("it is not reached"))
}

// tabBackTo is tabTo, backwards.
func (x *tab) tabBackTo(label string) {
	x.t.Helper()
	x.tabTo(label, chromedp.KeyModifiers(chromedp.ModifierShift))
}

// size is the window's, and its colours.
func (x *tab) size(width, height int64, colours string) {
	x.t.Helper()
	x.do("set the window", chromedp.EmulateViewport(width, height), call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: colours}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}))
}

// shot keeps a picture in the folder of TROUPE_SHOTS, for people.
func (x *tab) shot(name string) {
	dir := os.Getenv("TROUPE_SHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(x.ctx, patience)
	defer cancel()
	take := chromedp.FullScreenshot(100)
	if high, err := chromedp.Run(ctx, chromedp.Evaluate[int](`document.documentElement.scrollHeight`)); err != nil || high > 5000 {
		take = chromedp.CaptureScreenshot()
	}
	picture, err := chromedp.Run(ctx, take)
	if err != nil {
		x.t.Logf("take a picture: %v", err)
		return
	}
	file := filepath.Join(dir, strings.NewReplacer("/", "_", " ", "_").Replace(x.t.Name()+"_"+name)+".png")
	if err := os.WriteFile(file, picture, 0o600); err != nil {
		x.t.Logf("keep a picture: %v", err)
	}
}

// wantNoOverflow holds the page to the width of its window.
func (x *tab) wantNoOverflow() {
	x.t.Helper()
	if over := value[int](x, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
		x.t.Errorf("the page is %d pixels wider than its window: %s", over, value[string](x, `[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.tagName + '.' + e.className).slice(0, 8).join()`))
		x.shot("overflow")
	}
}
