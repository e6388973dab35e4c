#define NUMBER 7
