package describe

import (
	"fmt"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Limits returns the restrictions of a field that the API server validates.
func Limits(schema *apiextensionsv1.JSONSchemaProps) []string {
	limits := ownLimits(schema)
	switch {
	case schema.Items != nil:
		limits = append(limits, each(schema.Items.Schema)...)
	case schema.AdditionalProperties != nil:
		limits = append(limits, each(schema.AdditionalProperties.Schema)...)
	}
	return limits
}

// each returns the restrictions of the items of a list or a map. Restrictions of objects in it belong to their fields.
func each(schema *apiextensionsv1.JSONSchemaProps) []string {
	limits := ownLimits(schema)
	if len(limits) > 0 {
		limits[0] = "each " + limits[0]
	}
	return limits
}

func ownLimits(schema *apiextensionsv1.JSONSchemaProps) (limits []string) {
	add := func(format string, values ...any) { limits = append(limits, fmt.Sprintf(format, values...)) }
	if size := between(schema.MinLength, schema.MaxLength, "character", "characters"); size != "" {
		add("%s", size)
	}
	if size := between(schema.MinItems, schema.MaxItems, "entry", "entries"); size != "" {
		add("%s", size)
	}
	if size := between(schema.MinProperties, schema.MaxProperties, "entry", "entries"); size != "" {
		add("%s", size)
	}
	if size := between(schema.Minimum, schema.Maximum, "", ""); size != "" {
		add("%s", size)
	}
	if schema.Pattern != "" {
		add("matches %s", Code(schema.Pattern))
	}
	switch {
	case schema.XListType == nil:
	case *schema.XListType == "set":
		add("unique entries")
	case *schema.XListType == "map":
		var keys []string
		for _, key := range schema.XListMapKeys {
			keys = append(keys, Code(key))
		}
		add("one entry per %s", strings.Join(keys, " and "))
	}
	return append(limits, Rules(schema)...)
}

// Words returns the values of an enumeration.
func Words(schema *apiextensionsv1.JSONSchemaProps) (words []string) {
	for _, value := range schema.Enum {
		words = append(words, strings.Trim(string(value.Raw), `"`))
	}
	return words
}

// Rules returns the messages of the CEL rules, which the API server returns for an invalid request.
func Rules(schema *apiextensionsv1.JSONSchemaProps) (rules []string) {
	for _, rule := range schema.XValidations {
		rules = append(rules, "“"+Cell(rule.Message)+"”")
	}
	return rules
}

// between formats a range. Either limit may be missing.
func between[N int64 | float64](low, high *N, one, many string) string {
	unit := many
	if high != nil && *high == 1 || high == nil && low != nil && *low == 1 {
		unit = one
	}
	text := ""
	switch {
	case low != nil && high != nil && *low == *high:
		text = number(*low)
	case low != nil && high != nil:
		text = number(*low) + " to " + number(*high)
	case high != nil:
		text = "at most " + number(*high)
	case low != nil:
		text = "at least " + number(*low)
	default:
		return ""
	}
	return strings.TrimSpace(text + " " + unit)
}

func number[N int64 | float64](n N) string { return strconv.FormatInt(int64(n), 10) }
