package actors

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/pipeline"
)

// csvArguments turns {path, rows} into the arguments of write_file. Rows are lists, or objects: then the columns are the keys of all of them,
// in the order of the alphabet, and the first line names them.
func csvArguments(arguments string) (string, error) {
	var in struct {
		Path string `json:"path"`
		Rows []any  `json:"rows"`
	}
	d := json.NewDecoder(bytes.NewReader([]byte(arguments)))
	d.DisallowUnknownFields()
	d.UseNumber() // a long id is no fraction
	if err := d.Decode(&in); err != nil {
		return "", fmt.Errorf("write_csv takes {path, rows}: %w", err)
	}
	if in.Path == "" {
		return "", errors.New("write_csv takes {path, rows}, and path is missing")
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	columns := columnsOf(in.Rows)
	if len(columns) > 0 {
		if err := w.Write(columns); err != nil {
			return "", err
		}
	}
	for i, row := range in.Rows {
		var cells []string
		switch row := row.(type) {
		case map[string]any:
			for _, c := range columns {
				cells = append(cells, pipeline.Show(row[c]))
			}
		case []any:
			for _, v := range row {
				cells = append(cells, pipeline.Show(v))
			}
		default:
			return "", fmt.Errorf("write_csv: row %d is neither a list nor an object", i)
		}
		if err := w.Write(cells); err != nil {
			return "", err
		}
	}
	w.Flush()
	out, err := json.Marshal(map[string]string{"path": in.Path, "content": b.String()})
	return string(out), err
}

func columnsOf(rows []any) []string {
	seen := make(map[string]bool)
	for _, row := range rows {
		if m, ok := row.(map[string]any); ok {
			for k := range m {
				seen[k] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
