package tools

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// readable makes a text of a body. converted is false when HTML is given as it came although something else was wanted;
// ok is false when it is no text. partial says that the body goes on: its last character may be half.
func readable(data []byte, contentType, format string, partial bool) (text string, converted, ok bool) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind, _, _ = strings.Cut(http.DetectContentType(data), ";")
	}
	if partial {
		data = wholeRunes(data)
	}
	label := params["charset"]
	switch {
	case label == "" && utf8.Valid(data):
		text = string(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	case isText(kind):
		if text, err = decoded(data, contentType); err != nil {
			return "", false, false
		}
	default:
		return "", false, false
	}
	if strings.IndexByte(text, 0) >= 0 {
		return "", false, false
	}
	if format == "html" || kind != "text/html" && kind != "application/xhtml+xml" {
		return text, true, true
	}
	out, err := fromHTML(text, format == "text")
	if err != nil {
		return text, false, true
	}
	return out, true, true
}

func decoded(data []byte, contentType string) (string, error) {
	r, err := charset.NewReader(bytes.NewReader(data), contentType)
	if err != nil {
		return "", err
	}
	all, err := io.ReadAll(r)
	return strings.ToValidUTF8(string(all), "\uFFFD"), err
}

// isText tells types whose bytes may be read in some character set.
func isText(kind string) bool {
	switch kind {
	case "application/json", "application/xml", "application/xhtml+xml", "application/javascript", "application/x-javascript", "application/yaml":
		return true
	}
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") || strings.HasSuffix(kind, "+yaml")
}

// wholeRunes drops the beginning of a character at the end.
func wholeRunes(data []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if at := len(data) - n; utf8.RuneStart(data[at]) {
			if !utf8.FullRune(data[at:]) {
				return data[:at]
			}
			break
		}
	}
	return data
}

// fromHTML turns a page into Markdown or plain text. The parser refuses what is nested too deeply to be walked.
func fromHTML(page string, plain bool) (string, error) {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return "", err
	}
	if plain || indents(root, 0) > maxIndents {
		w := &plainWriter{}
		w.walk(root)
		return strings.TrimSpace(w.out.String()), nil
	}
	defuse(root)
	c := converter.NewConverter(converter.WithEscapeMode(converter.EscapeModeDisabled), converter.WithPlugins(base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(), table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal))))
	out, err := c.ConvertNode(root)
	return string(bytes.TrimSpace(out)), err
}

// maxIndents bounds how deep quotes and lists may stand in one another: a converter writes each line anew for each of them, and a
// small page takes minutes. What is nested deeper is given as plain text.
const maxIndents = 12

// indents is how deep quotes and lists stand in one another.
func indents(n *html.Node, depth int) int {
	switch n.DataAtom {
	case atom.Blockquote, atom.Ul, atom.Ol, atom.Li, atom.Dl, atom.Dd:
		depth++
	default:
	}
	deepest := depth
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		deepest = max(deepest, indents(c, depth))
	}
	return deepest
}

// defuse takes from a page what makes a converter do far more than the page's length: a cell that spans a billion
// columns, a list that begins at a number of any length.
func defuse(n *html.Node) {
	n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool {
		return a.Key == "colspan" || a.Key == "rowspan" || a.Key == "start" && len(a.Val) > 9
	})
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		defuse(c)
	}
}

// plainWriter collects what a reader of a page would see: words with one space between, and a new line where a block
// begins or ends.
type plainWriter struct {
	out   strings.Builder
	space bool // between what is written and what comes
	lines int  // the same, and it counts before space
	pre   int  // how deep in text that is laid out already
}

func (w *plainWriter) walk(n *html.Node) {
	switch n.Type {
	case html.TextNode:
		w.text(n.Data)
		return
	case html.ElementNode:
		switch n.DataAtom {
		case atom.Script, atom.Style, atom.Head, atom.Noscript, atom.Template, atom.Svg, atom.Iframe, atom.Select:
			return
		case atom.Br:
			w.lines = max(w.lines, 1)
		case atom.Pre, atom.Textarea:
			w.pre++
			defer func() { w.pre-- }()
		default:
		}
	default:
	}
	around := breaks(n)
	w.lines = max(w.lines, around)
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		w.walk(c)
	}
	w.lines = max(w.lines, around)
}

func (w *plainWriter) text(s string) {
	if w.pre > 0 {
		w.gap()
		w.out.WriteString(s)
		return
	}
	for i, word := range strings.Fields(s) {
		w.space = w.space || i > 0 || strings.TrimLeft(s, " \t\r\n") != s
		w.gap()
		w.out.WriteString(word)
	}
	w.space = w.space || s != "" && strings.TrimRight(s, " \t\r\n") != s
}

func (w *plainWriter) gap() {
	switch {
	case w.out.Len() == 0:
	case w.lines > 0:
		w.out.WriteString("\n\n"[:min(w.lines, 2)])
	case w.space:
		w.out.WriteByte(' ')
	}
	w.lines, w.space = 0, false
}

// breaks is how many lines end before and after an element.
func breaks(n *html.Node) int {
	switch n.DataAtom {
	case atom.P, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Pre, atom.Table, atom.Ul, atom.Ol, atom.Blockquote, atom.Section, atom.Article:
		return 2
	case atom.Div, atom.Li, atom.Tr, atom.Dt, atom.Dd, atom.Header, atom.Footer, atom.Nav, atom.Main, atom.Form, atom.Figure, atom.Hr:
		return 1
	default:
		return 0
	}
}
