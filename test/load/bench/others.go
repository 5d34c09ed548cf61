package main

import (
	"encoding/json"
	"errors"
	"fmt"
)

// What Sallyport is compared with: OPA and CEL as they are used from Go without further thought. Both get their facts for nothing,
// decoded; neither makes a response, keeps a record, counts, or has a deadline.

const (
	rowNaive      = "naive"
	rowNaiveFresh = "naive-fresh"
	rowCEL        = "cel"
)

// judge tells whether a request is denied.
type judge func(request map[string]any, machine any, unfinished []any) (denied bool, err error)

// others are the rows of a subject that are not requests to Sallyport.
func (w *world) others() (map[string]func(n int) error, error) {
	prepared, fresh, err := w.naive()
	if err != nil {
		return nil, fmt.Errorf("preparing OPA: %w", err)
	}
	single, err := w.cel()
	if err != nil {
		return nil, fmt.Errorf("preparing CEL: %w", err)
	}
	rows := map[string]func(n int) error{}
	idles := make([]map[string]any, 100)
	for i := range idles {
		if err := json.Unmarshal(of(machineCalled, idle(i)), &idles[i]); err != nil {
			return nil, err
		}
	}
	for name, denied := range map[string]judge{rowNaive: prepared, rowNaiveFresh: fresh, rowCEL: single} {
		next := 0
		rows[name] = func(n int) error {
			for range n {
				next++
				i := next % len(idles)
				if err := judged(of(reviewFor, idle(i)), idles[i], denied); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return rows, nil
}

func judged(body []byte, machine any, denied judge) error {
	var review struct{ Request map[string]any }
	if err := json.Unmarshal(body, &review); err != nil {
		return err
	}
	is, err := denied(review.Request, machine, []any{})
	if err == nil && is {
		err = errors.New("an idle machine is denied")
	}
	return err
}
