use super::*;

#[test]
fn numbers_have_about_three_digits() {
    let cases = [
        (0.0, "0"),
        (0.000_012, "1.2e-5"),
        (0.012_34, "0.0123"),
        (1.234_5, "1.234"),
        (-42.04, "-42.0"),
        (1234.5, "1234"),
    ];
    for (value, expected) in cases {
        assert_eq!(digits(value), expected);
    }
}

#[test]
fn what_comes_from_outside_is_escaped() {
    let template = "{{ word }} {{ 12.5|ms }}";
    let values = minijinja::context! { word => "<script>" };
    assert_eq!(render(template, values).unwrap(), "&lt;script&gt; 12 ms");
}
