package tools_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/toolstest"
)

type weather struct {
	City  string            `json:"city" desc:"Name of the city."`
	Unit  string            `json:"unit,omitempty" desc:"Unit." enum:"C,F"`
	Days  *int              `json:"days" desc:"Days ahead." min:"1" max:"14"`
	Since time.Time         `json:"since,omitzero" desc:"Moment."`
	Tags  map[string]string `json:"tags,omitempty" desc:"Labels."`
	Spots []struct {
		Lat float64 `json:"lat" desc:"Latitude."`
		N   uint8   `json:"n,omitempty" desc:"Weight."`
	} `json:"spots,omitempty" desc:"Places."`
	Extra any `json:"extra,omitempty" desc:"Anything."`

	hidden int
}

func weatherSpec() tools.Spec {
	return tools.Spec{Name: "weather", Description: "Tells the weather. Example: `{\"city\": \"Ulm\", \"days\": 2}`", Effect: messages.Effect_PURE}
}

func TestAFunctionIsAToolWithADerivedSchema(t *testing.T) {
	var seen weather
	tool, err := tools.Func(weatherSpec(), func(_ *tools.Context, a weather) (*tools.Result, error) {
		seen = a
		return &tools.Result{Content: "rain"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	toolstest.Run(t, tool)
	args := `{"city":"Ulm","unit":"C","days":3,"since":"2026-01-02T00:00:00Z","tags":{"a":"b"},"spots":[{"lat":1.5,"n":255}],"extra":[1],"workspace_id":"home"}`
	res, err := tool.Run(&tools.Context{}, json.RawMessage(args))
	if err != nil || res.Content != "rain" || seen.City != "Ulm" || *seen.Days != 3 || seen.Since.Year() != 2026 || seen.Spots[0].N != 255 || seen.hidden != 0 {
		t.Fatalf("%v %v %+v", res, err, seen)
	}
	for args, text := range map[string]string{
		`{"unit":"C"}`:                              `missing required argument "city"`,
		`{"city":"x","unit":"K"}`:                   `must be one of "C", "F"`,
		`{"city":"x","days":0}`:                     `at least 1`,
		`{"city":"x","spots":[{"n":1}]}`:            `"spots[0].lat"`,
		`{"city":"x","spots":[{"lat":1,"n":-1}]}`:   `at least 0`,
		`{"city":"x","spots":[{"lat":1,"n":300}]}`:  `out of range`,
		`{"city":"x","tags":{"a":1}}`:               `must be a string`,
		`{"city":"x","Hidden":1}`:                   `unknown argument`,
		`{"city":"x","spots":{"lat":1}}`:            `must be an array`,
		`{"city":"x","extra":{"a":1,"a":2}}`:        `given twice`,
		`{"city":"x","tags":{"a":"b","a":"c"}}`:     `given twice`,
		`{"CITY":"x"}`:                              `did you mean "city"`,
		`{"city":"x","days":1.0e400000000000000}`:   `must be an integer`,
		`{"city":"x","days":99999999999999999999}`:  `at most 14`,
		`{"city":"x","since":"yesterday-ish","a":}`: `not valid JSON`,
	} {
		_, err := tool.Run(&tools.Context{}, json.RawMessage(args))
		var e *tools.Error
		if !errors.As(err, &e) || e.Code != tools.CodeInvalidArguments || !strings.Contains(e.Message, text) {
			t.Errorf("%s: %v, want %s", args, err, text)
		}
	}
	seen = weather{}
	if _, err := tool.Run(&tools.Context{}, json.RawMessage(`{"city":"x","days":null,"unit":null}`)); err != nil || seen.Days != nil {
		t.Errorf("a null for an optional argument: %v", err)
	}
}

type ring struct {
	Next *ring `json:"next" desc:"Next."`
}

func TestTypesWithoutASchemaAreRefused(t *testing.T) {
	check := func(what string, _ tools.Tool, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	tool, err := tools.Func(weatherSpec(), func(*tools.Context, string) (*tools.Result, error) { return nil, nil })
	check("no struct", tool, err)
	tool, err = tools.Func(weatherSpec(), func(*tools.Context, struct {
		C chan int `json:"c" desc:"x"`
	},
	) (*tools.Result, error) {
		return nil, nil
	})
	check("a channel", tool, err)
	tool, err = tools.Func(weatherSpec(), func(*tools.Context, struct {
		M map[int]string `json:"m" desc:"x"`
	},
	) (*tools.Result, error) {
		return nil, nil
	})
	check("keys that are no strings", tool, err)
	tool, err = tools.Func(weatherSpec(), func(*tools.Context, struct {
		A string `json:"a"`
	},
	) (*tools.Result, error) {
		return nil, nil
	})
	check("no desc", tool, err)
	tool, err = tools.Func(weatherSpec(), func(*tools.Context, struct {
		A []byte `json:"a" desc:"x"`
	},
	) (*tools.Result, error) {
		return nil, nil
	})
	check("bytes", tool, err)
	tool, err = tools.Func(weatherSpec(), func(*tools.Context, struct {
		A string `json:"a" desc:"x" min:"1"`
	},
	) (*tools.Result, error) {
		return nil, nil
	})
	check("a minimum of a string", tool, err)
	tool, err = tools.Func(weatherSpec(), func(*tools.Context, ring) (*tools.Result, error) { return nil, nil })
	check("a type that contains itself", tool, err)
	tool, err = tools.Func[weather](weatherSpec(), nil)
	check("no function", tool, err)
	spec := weatherSpec()
	spec.Name = "Weather"
	tool, err = tools.Func(spec, func(*tools.Context, weather) (*tools.Result, error) { return nil, nil })
	check("a bad name", tool, err)
}
